// Package runs lists the folders of training runs below a folder.
//
//	all, err := runs.Find("runs")
//	all = runs.Select(all, runs.Filter{Algo: "ppo", State: runs.Running})
//	err = runs.Sort(all, runs.ByBest)
//	err = runs.WriteText(os.Stdout, all, 80) // or WriteJSON
//	for _, d := range runs.Compare(all) {
//		fmt.Println(d.Key, d.Values)
//	}
//
// A folder is that of a run if it has run.json, or config.yaml and progress.csv. A run whose files cannot be read is listed
// with what is wrong, and the others are listed all the same. Below the folder of a run no other is looked for. Links are not followed.
//
// A run is running while a job holds the lock of its folder (parallel/rundir). Otherwise it is finished if outcome.json
// says that it ended with success, and stopped if not: it has failed, was preempted, or was killed. Where the file
// system has no locks, or the lock cannot be read, a run without an outcome is unknown.
//
// Find changes no file. The functions are safe for concurrent use, but for those that change the slice that
// they are given. Texts from files are cut and safe to print.
package runs
