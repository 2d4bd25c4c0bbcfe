// The JobSet whose custom resource definition the tests install.
module github.com/ditask/ditask/k8s/internal/jobset

go 1.26.0

require sigs.k8s.io/jobset v0.11.1
