// Package serve answers observations with the actions of a policy, over HTTP on TCP and on a unix socket.
//
//	s, err := serve.New(serve.Config{
//		Parts:  []serve.Part{{Kind: "Box", Shape: []int{4}, To: 4}},
//		Action: policy.Spec().Action,
//		Log:    slog.Default(),
//	}, policy)
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	cut, err := s.Run(ctx, s.Bound(l)...) // until ctx ends: readiness off, requests under way are answered
//	http.Handle("/", s)                // or as a handler in a server of the program's own
//
// It is internal, and not below policies, because it counts with the parts of parallel/metrics, which policies
// must not reach. The protocol is public: see docs/serve.md.
//
// # Concurrency
//
// A policy is for one goroutine. The goroutine of a request that finds the policy idle acts itself: a lone request
// waits for nothing and changes no goroutine. Requests that come in the meantime wait; when it is done, the first of them
// acts for all, in one call, up to Config.MaxBatch observations. Requests that sample, or that want extra values,
// act in a call each, so that a seed gives the same actions whatever else comes in. [Server.Swap] exchanges the
// policy between two calls. All methods of a Server are safe for concurrent use.
//
// # Ends, waits, bounds
//
// Ends: when the context of [Server.Run] ends, /readyz is 503, no connection is accepted, requests in progress are
// answered for Config.Grace, and then what is left is cut. Waits: a request waits for its body (Config.Timeout, then
// 408) and for the policy (Config.Timeout, then 503). A client that goes away while it waits is forgotten; its
// session does not change. Bounds: Config.MaxBody bytes of a body, of which the memory is taken as they come;
// bodies over 64 KiB are read by at most a quarter of Config.MaxInFlight requests; Config.MaxInFlight requests that
// act or wait for it; Config.MaxConns connections; Config.MaxSessions sessions, each idle for at most
// Config.SessionIdle.
//
// # Errors
//
// Each fault of a request is one JSON body {"error":{"code","where","message"}}, with a status that says whose fault
// it is. No request ends the server: a panic of the policy is a 500 and a line of the log.
package serve
