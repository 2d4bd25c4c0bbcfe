package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/metrics"
)

// exchange is the memory of one request and its answer, which is used again.
type exchange struct {
	job
	body []byte
	out  []byte
}

// keptBytes is how large the memory of an exchange may be to be used again.
const keptBytes = 1 << 20

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := http.MethodGet
	serve := s.get
	switch r.URL.Path {
	case "/v1/act":
		method, serve = http.MethodPost, s.act
	case "/v1/policy", "/metrics", "/healthz", "/readyz":
	default:
		s.refuse(w, &fault{http.StatusNotFound, codeNotFound, "", "there is no " + quoted(r.URL.Path) +
			": want POST /v1/act, or GET /v1/policy, /healthz, /readyz or /metrics"})
		return
	}
	if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		w.Header().Set("Allow", method)
		s.refuse(w, &fault{http.StatusMethodNotAllowed, codeMethod, "", r.URL.Path + " is for " + method + ", not " + quoted(r.Method)})
		return
	}
	if open := strings.HasSuffix(r.URL.Path, "z"); !open && !s.authorized(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.refuse(w, &fault{http.StatusUnauthorized, codeUnauthorized, "", "the token is missing or wrong: send the header " +
			"Authorization: Bearer TOKEN"})
		return
	} else if !open && s.fromAPage(r) {
		s.refuse(w, &fault{http.StatusForbidden, codeForbidden, "", "the request is for the host " + quoted(r.Host) + ", or from a web page " +
			"of another host: ask 127.0.0.1 or localhost without Origin, or start the server with --token-file"})
		return
	}
	serve(w, r)
}

// loopback is in the context of requests that came to a loopback address.
type loopback struct{}

// fromAPage reports whether a web page of another host may be behind a request that needs no token: browsers let every page send
// requests to this machine, and one whose host name resolves to this machine may read the answers.
func (s *Server) fromAPage(r *http.Request) bool {
	if s.cfg.Token != "" || r.Context().Value(loopback{}) == nil {
		return false
	}
	if !loopbackHost(r.Host) {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !loopbackHost(u.Host) {
			return true
		}
	}
	return false
}

// loopbackHost reports whether a host, with or without a port, is this machine by every resolver. HTTP/1.0 may name none.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "" || strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// get answers requests that only read.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/policy":
		s.describe(w)
	case "/metrics":
		metrics.HandlerOf(Table(), func(context.Context) []metrics.Sample { return s.Metrics() }).ServeHTTP(w, r)
	case "/readyz":
		if s.ending.Load() {
			s.write(w, &fault{http.StatusServiceUnavailable, codeEnding, "", "the server is ending"})
			return
		}
		fallthrough
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"status\":\"ok\"}\n") // the caller has gone
	}
}

// local is in the context of requests that came over a unix socket.
type local struct{}

// authorized reports whether a request has the token. A client of the unix socket needs none.
func (s *Server) authorized(r *http.Request) bool {
	if s.cfg.Token == "" || r.Context().Value(local{}) != nil {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.cfg.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// act answers POST /v1/act.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	x, _ := s.spare.Get().(*exchange)
	if x == nil {
		x = &exchange{job: job{turn: make(chan bool, 1)}}
	}
	f := s.answer(w, r, x)
	if f != nil {
		s.refuse(w, f)
	} else {
		h := w.Header()
		h["Content-Type"] = s.jsonType
		if _, err := w.Write(x.out); err != nil {
			s.count(codeGone)
		} else {
			s.count(codeOK)
		}
	}
	s.latency.observe(time.Since(began).Seconds())
	if cap(x.body)+cap(x.out)+4*(cap(x.obs)+cap(x.action)) <= keptBytes {
		s.spare.Put(x)
	}
}

// answer reads a request and makes its answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, x *exchange) *fault {
	if f := s.read(w, r, x); f != nil {
		return f
	}
	if s.inFlight.Add(1) > int64(s.cfg.MaxInFlight) {
		s.inFlight.Add(-1)
		return &fault{http.StatusTooManyRequests, codeBusy, "", fmt.Sprintf("%d requests are under way: try again, send several "+
			"observations in one request, "+
			"or start the server with a greater --max-in-flight", s.cfg.MaxInFlight)}
	}
	defer s.inFlight.Add(-1)
	if f := s.cfg.decode(x.body, &x.request); f != nil {
		return f
	}
	if f := s.sessions.take(&x.job); f != nil {
		return f
	}
	x.fault, x.extra = nil, nil
	f := s.actor.do(r.Context(), &x.job)
	s.sessions.give(&x.job)
	if f == nil {
		x.out = s.cfg.answer(x.out[:0], &x.request, &x.job)
	}
	return f
}

// smallBody is the size up to which a body is read whatever else is read.
const smallBody = 64 << 10

// read reads the body.
func (s *Server) read(w http.ResponseWriter, r *http.Request, x *exchange) *fault {
	most := int64(s.cfg.MaxBody)
	large := &fault{http.StatusRequestEntityTooLarge, codeTooLarge, "", fmt.Sprintf("the body has more than %d bytes: send it in "+
		"parts, or start the server "+
		"with a greater --max-body", most)}
	if r.ContentLength > most {
		return large
	}
	x.body = x.body[:0]
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		select {
		case s.uploads <- struct{}{}:
			defer func() { <-s.uploads }()
		default:
			return &fault{http.StatusTooManyRequests, codeBusy, "", fmt.Sprintf("%d bodies of more than %d bytes, or of a length that was "+
				"not announced, are being read: "+
				"try again, or send smaller ones with a Content-Length", cap(s.uploads), smallBody)}
		}
	}
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(slices.Grow(x.body, 4096), 0)[:len(x.body)] // it grows as the bytes come
		}
		n, err := r.Body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case int64(len(x.body)) > most:
			return large
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err):
			w.Header().Set("Connection", "close")
			return &fault{http.StatusRequestTimeout, codeTimeout, "", fmt.Sprintf("the body was not there after %v: %d bytes had come: "+
				"send it faster, or start "+
				"the server with a greater --timeout", s.cfg.Timeout, len(x.body))}
		case err != nil:
			w.Header().Set("Connection", "close")
			return &fault{http.StatusBadRequest, codeGone, "", "the body ended before its end: " + printable.Cut(err.Error(), 128)}
		}
	}
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// refuse answers a fault, and counts it.
func (s *Server) refuse(w http.ResponseWriter, f *fault) {
	s.count(f.code)
	s.write(w, f)
}

// write answers a fault.
func (s *Server) write(w http.ResponseWriter, f *fault) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch f.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusRequestEntityTooLarge:
		h.Set("Connection", "close") // the rest of the body is not read
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(faultJSON(f)) // the caller has gone
}

// faultJSON returns the body of the answer to a fault.
func faultJSON(f *fault) []byte {
	type body struct {
		Code    string `json:"code"`
		Where   string `json:"where,omitempty"`
		Message string `json:"message"`
	}
	b, err := json.Marshal(map[string]body{"error": {f.code, f.where, f.message}})
	if err != nil {
		return []byte("{}\n") // texts have a form in JSON
	}
	return append(printable.JSON(b), '\n')
}
