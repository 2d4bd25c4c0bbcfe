// Package plot draws learning curves of training runs, as PNG or SVG.
//
//	var runs []plot.Run
//	for _, dir := range dirs {
//		run, err := plot.Read(dir) // progress.csv, and config.yaml if it exists
//		...
//		runs = append(runs, run)
//	}
//	err := plot.Curves(w, plot.PNG, runs, plot.Config{Threshold: []float64{475}})
//
// Runs of one algorithm in one environment are one curve: the interquartile mean over the runs, with a 95 % confidence band.
//
// # Statistics
//
// The statistics are those of Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement Learning at the Edge of the
// Statistical Precipice", NeurIPS 2021. The interquartile mean omits the lowest and the highest quarter of the
// scores, rounded down to whole scores, and is the mean of the others. With fewer than four runs it is the mean of all. The band
// lies between the 2.5th and the 97.5th percentile of the interquartile means of resamples, each of which draws as many whole
// runs as there are, with replacement, separately for each environment.
//
// Runs have rows at different steps. Each run is interpolated linearly onto a common grid, from the last of the first rows to the
// first of the last rows: a curve ends where its shortest run ends, because curve and band would jump with fewer runs.
// Runs that are longer than that by more than a fiftieth of their length continue as thin lines, with a note below the
// picture. A single run is a line
// smoothed by a moving mean over a twentieth of the axis, on a light line of its values.
//
// # Concurrency and errors
//
// The functions are safe for concurrent use. Equal runs and configs give equal bytes on processors of one kind. Errors name the run, or
// file, line and column.
package plot
