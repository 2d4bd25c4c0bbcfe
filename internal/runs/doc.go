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
// A folder with run.json, or with config.yaml and progress.csv, is the folder of a run. A run with unreadable files is listed
// with the error, and does not affect the others. Find does not search below the folder of a run, and does not follow links.
//
// A run is running while a job holds the lock of its folder (parallel/rundir). Otherwise it is finished if the outcome in outcome.json
// is success, and stopped if not: it has failed, was preempted, or was killed. Where the file
// system has no locks, or the lock cannot be read, a run without an outcome is unknown.
//
// Find changes no file. The functions are safe for concurrent use, except those that change their
// argument. Texts from files are cut and safe to print.
package runs
