// Package controller makes the pods of a DIJob match its spec.
//
// Reconciler reads a job and its pods, asks decide, which is a pure function,
// what is to be done, writes the status that decide says, and only then deletes
// and creates. It keeps nothing between two calls: whatever must be remembered is
// in the job's status, so an operator that is stopped anywhere continues where the
// last one was.
//
// Two pods never have one rank: the name of a pod is made of its rank's task and
// index, and the API server has one pod of a name. A failure is counted once: its
// pod's UID is written to the status, against the resource version that decide
// saw, before the pod is deleted. So a cache that lags behind costs a refused
// write and another look, nothing else.
package controller
