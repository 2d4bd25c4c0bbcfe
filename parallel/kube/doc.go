// Package kube reads from the environment of a pod where the launchers of a job
// run: one launcher is one pod.
//
//	pod, err := kube.Parse(os.LookupEnv)
//	if err != nil {
//		return err // all faults, each with its variable and value
//	}
//	plan, err := placement.New(placement.Flags{Job: pod.Job(), Workers: 1}, pod.Site())
//
// Everything here is a pure function of the variables. [Where] says which of
// them there are. The first of these counts, the others are not read:
//
//  1. DI_NODES, the host names of all pods by rank, as the operator of DIJob sets
//     it, or a template of a Job or JobSet. Which of them this pod is says
//     DI_RANK; without it JobSet's names (JOBSET_NAME, REPLICATED_JOB_NAME,
//     JOB_INDEX and JOB_COMPLETION_INDEX); without these JOB_COMPLETION_INDEX,
//     which each pod of an Indexed Job has.
//  2. LWS_LEADER_ADDRESS, LWS_WORKER_INDEX and LWS_GROUP_SIZE, which each pod of a
//     LeaderWorkerSet has. Each group is a job.
//  3. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the names of torchrun and of
//     PyTorchJob. Only one host is known then: all nodes dial the first one there,
//     and learn of the others, at POD_IP, when they join.
//
// # Ranges
//
// A part [a-b] in DI_NODES stands for the numbers from a to b, the last of
// several in one name counting fastest: dqn-[0-3].dqn is the four pods of the
// Job dqn with the headless Service dqn, and
//
//	dqn-learner-0-0.dqn,dqn-collector-[0-1]-[0-3].dqn
//
// those of a JobSet. An index alone does not say how many pods there are, nor
// under which Service: so DI_NODES is needed besides it.
package kube
