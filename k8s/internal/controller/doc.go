// Package controller makes the pods of a DIJob match its spec.
//
// Reconciler reads a job and its pods, calls decide, a pure function that returns the new status
// and the changes, writes the status, and only then deletes and creates. It keeps no state between
// two calls: all state is in the job's status, so a new operator continues where the previous one
// stopped.
//
// Two pods never have the same rank: the name of a pod follows from its rank's task and index, and
// the API server has at most one pod of a name. A failure is counted once: the UID of its pod is
// written to the status, against the resource version that decide read, before the pod is deleted.
// A stale cache therefore only causes a refused write and another reconciliation.
package controller
