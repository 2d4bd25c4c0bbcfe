// Package middleware has middleware for any task: what runs around a step,
// whatever its context is.
//
//	timer := middleware.NewStepTimer[Context]()
//	t.Wrap(timer.Wrap)
//	t.Use(
//		middleware.Log[Context](t.Logger(), slog.LevelInfo, 100),
//		middleware.Timeout[Context](time.Minute),
//		middleware.Retry(middleware.Backoff{Tries: 3, First: time.Second}, fetch),
//		middleware.Every(10, evaluate),
//	)
//
// A middleware counts the steps that it has seen, so each value belongs to one
// task. Apart from [StepTimer.Stats], nothing here is for concurrent use, other
// than by the one task that runs it. Errors pass through, wrapped with what was
// done about them.
package middleware
