package serve

import (
	"math"
	"strconv"

	"github.com/ditask/ditask/envs"
)

// answer appends the answer to a request.
func (c *Config) answer(b []byte, r *request, j *job) []byte {
	dim := c.Action.Dim()
	if !r.batch {
		b = append(b, `{"action":`...)
		b = c.action(b, j.action)
	} else {
		b = append(b, `{"actions":[`...)
		for i := range r.rows {
			if i > 0 {
				b = append(b, ',')
			}
			b = c.action(b, j.action[i*dim:(i+1)*dim])
		}
		b = append(b, ']')
	}
	b = append(b, `,"version":`...)
	b = strconv.AppendUint(b, j.version, 10)
	if r.extras {
		b = append(b, `,"extras":`...)
		b = extras(b, r, j)
	}
	return append(b, "}\n"...)
}

// extras appends the columns that the policy adds, one value for each observation.
func extras(b []byte, r *request, j *job) []byte {
	b = append(b, '{')
	for k := range j.columns {
		col := &j.columns[k]
		if !shown(col.Name) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, col.Name)
		b = append(b, ':')
		if !r.batch {
			b = columnRow(b, j.extra[k], col.Width())
			continue
		}
		b = append(b, '[')
		w := col.Width()
		for i := range r.rows {
			if i > 0 {
				b = append(b, ',')
			}
			b = columnRow(b, j.extra[k][i*w:(i+1)*w], w)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// columnRow appends the values of a column for one observation: a number, or a list of several.
func columnRow(b []byte, v []float32, width int) []byte {
	if width == 1 {
		return number(b, v[0])
	}
	return numbers(b, v)
}

// action appends one action, as the environment has it.
func (c *Config) action(b []byte, v []float32) []byte {
	switch a := c.Action.(type) {
	case envs.Discrete:
		return strconv.AppendInt(b, int64(v[0]), 10)
	case envs.Box:
		if len(a.Shape) > 1 {
			return shaped(b, v, a.Shape)
		}
		return numbers(b, v)
	}
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(x), 10)
	}
	return append(b, ']')
}

// shaped appends values as nested lists.
func shaped(b []byte, v []float32, shape []int) []byte {
	if len(shape) == 1 {
		return numbers(b, v)
	}
	b = append(b, '[')
	n := len(v) / shape[0]
	for i := range shape[0] {
		if i > 0 {
			b = append(b, ',')
		}
		b = shaped(b, v[i*n:(i+1)*n], shape[1:])
	}
	return append(b, ']')
}

func numbers(b []byte, v []float32) []byte {
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = number(b, x)
	}
	return append(b, ']')
}

// number appends the shortest number that reads back as the same float32. JSON has none that is not finite.
func number(b []byte, x float32) []byte {
	if math.IsInf(float64(x), 0) || x != x {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(x), 'g', -1, 32)
}
