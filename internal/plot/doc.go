// Package plot draws learning curves of training runs, as PNG or SVG.
//
//	var runs []plot.Run
//	for _, dir := range dirs {
//		run, err := plot.Read(dir) // progress.csv, and config.yaml if it is there
//		...
//		runs = append(runs, run)
//	}
//	err := plot.Curves(w, plot.PNG, runs, plot.Config{Threshold: []float64{475}})
//
// Runs of one algorithm in one environment are one curve: the interquartile mean over the runs, with a 95 % confidence band.
//
// # Statistics
//
// They are those of Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement Learning at the Edge of the
// Statistical Precipice", NeurIPS 2021. The interquartile mean leaves out the lowest and the highest quarter of the
// scores, rounded down to whole scores, and is the mean of the others: of less than four runs it is their mean. The band
// lies between the 2.5th and the 97.5th percentile of the interquartile means of resamples, each of which draws as many whole
// runs as there are, with replacement, from each environment by itself.
//
// Runs have rows at different steps. Each run is interpolated linearly onto a common grid, from the last of the first rows to the
// first of the last rows: a curve ends where its shortest run ends, since with fewer runs curve and band would jump.
// Runs that go on behind it for more than a fiftieth of their length are continued as thin lines, and a note below the
// picture says so. One run alone is a line
// smoothed by a moving mean over a twentieth of the axis, on a light line of its values.
//
// # Concurrency and errors
//
// The functions are safe for concurrent use. Equal runs and configs give equal bytes on processors of one kind. Errors name the run, or
// file, line and column.
package plot
