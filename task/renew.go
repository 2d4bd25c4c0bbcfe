package task

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// renewal restores a context to its defaults in place, except for the kept fields. It uses reflection
// once, when the fields change.
type renewal[C any] struct {
	c, proto, scratch *C
	plan              atomic.Pointer[[]carry]

	mu   sync.Mutex
	kept map[string]bool
}

// carry moves one kept field from the context to the fresh copy.
type carry struct{ from, to reflect.Value }

func newRenewal[C any]() *renewal[C] {
	r := &renewal[C]{c: new(C), proto: new(C), scratch: new(C), kept: map[string]bool{}}
	if t := reflect.TypeFor[C](); t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if f.Tag.Get("task") == "keep" {
				r.keep(f.Name)
			} else if tag, ok := f.Tag.Lookup("task"); ok {
				panic(fmt.Sprintf("task: field %s has the tag task:%q, which is not task:\"keep\"", f.Name, tag))
			}
		}
	}
	return r
}

func (r *renewal[C]) keep(name string) {
	t := reflect.TypeFor[C]()
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("task: Keep(%q): context %v is not a struct", name, t))
	}
	f, ok := t.FieldByName(name)
	if !ok {
		panic(fmt.Sprintf("task: Keep(%q): context %v has no such field", name, t))
	}
	from, ok := fieldOf(reflect.ValueOf(r.c).Elem(), f)
	to, _ := fieldOf(reflect.ValueOf(r.scratch).Elem(), f)
	if !ok {
		panic(fmt.Sprintf("task: Keep(%q): the field is reached through a pointer", name))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[name] {
		return
	}
	r.kept[name] = true
	var plan []carry
	if old := r.plan.Load(); old != nil {
		plan = append(plan, *old...)
	}
	plan = append(plan, carry{from: from, to: to})
	r.plan.Store(&plan)
}

// fieldOf reaches a field of v that may be unexported, or promoted from an
// embedded struct.
func fieldOf(v reflect.Value, f reflect.StructField) (reflect.Value, bool) {
	for _, i := range f.Index {
		if v.Kind() != reflect.Struct {
			return v, false
		}
		v = v.Field(i)
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem(), true
}

func (r *renewal[C]) renew() {
	plan := r.plan.Load()
	if plan == nil {
		*r.c = *r.proto
		return
	}
	*r.scratch = *r.proto
	for i := range *plan {
		(*plan)[i].to.Set((*plan)[i].from)
	}
	*r.c = *r.scratch
}
