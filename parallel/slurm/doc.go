// Package slurm reads from Slurm's environment where the launchers of a job run:
// one launcher is one task of a step, started by srun.
//
//	step, err := slurm.Parse(os.LookupEnv)
//	if err != nil {
//		return err // all faults, each with its variable and value
//	}
//	site := step.Site()
//	plan, err := placement.New(placement.Flags{Job: step.Job(), Workers: 1}, site)
//
// Everything here is a pure function of the variables. [Where] tells a task of a
// step from a batch script, which has SLURM_PROCID and SLURM_NTASKS too but is no
// task.
//
// # What is known
//
// SLURM_PROCID, SLURM_LOCALID and SLURM_NODEID are right for the task itself,
// however tasks are distributed. On which host another task runs is known only
// of a block distribution, so nothing is guessed: all nodes of the job dial
// one that everyone can find, the first node of the first task on the first host of
// SLURM_STEP_NODELIST, and learn of the others when they join. That task is task 0
// unless the distribution is arbitrary. The variables of the step win over those of
// the job, whose SLURM_NODELIST stays the same in a smaller step, and whose
// SLURM_NTASKS_PER_NODE is not needed.
//
// # Ports
//
// Only the node that is dialled needs a port that all know: the first of
// SLURM_STEP_RESV_PORTS, if Slurm has reserved ports for the step, or else
//
//	20000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) mod 10007
//
// which is from 20000 to 30006: below the ports that Linux gives to outgoing
// connections, and another one for each of 10007 jobs in a row. Other nodes use
// reserved ports as far as there are any, and then free ones.
package slurm
