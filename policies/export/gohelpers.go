package export

// decodeText reads weights. Lines are multiples of three bytes, so that they join without padding.
const decodeText = `// decode reads float32 numbers, little-endian, from base64.
func decode(text string) []float32 {
	raw, err := base64.StdEncoding.DecodeString(text) // skips line breaks
	if err != nil {
		panic(err)
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
`

// goHelper is a function that a Go file contains if it uses it.
type goHelper struct {
	name    string
	imports []string
	text    string
}

// goHelpers are the functions, in the order in which they are written.
var goHelpers = []goHelper{
	{"dense", nil, `// dense is x weight + bias.
func dense(x, weight, bias []float32) []float32 {
	y := product(x, weight, len(x), len(bias))
	for i, b := range bias {
		y[i] += b
	}
	return y
}
`},
	{"product", nil, `// product multiplies rows of in values by a weight of in x out.
func product(x, weight []float32, in, out int) []float32 {
	y := make([]float32, 0, len(x)/in*out)
	sums := make([]float64, out)
	for ; len(x) > 0; x = x[in:] {
		clear(sums)
		for i, v := range x[:in] {
			for j, w := range weight[i*out : (i+1)*out] {
				sums[j] += float64(v) * float64(w)
			}
		}
		for _, s := range sums {
			y = append(y, float32(s))
		}
	}
	return y
}
`},
	{"convolve", nil, `// convolve moves a window of kernel x kernel pixels over an image of height x width pixels of depth channels,
// which stand together. The weight is kernel x kernel x depth x len(bias).
func convolve(x, weight, bias []float32, height, width, depth, kernel, stride int) []float32 {
	var y []float32
	sums := make([]float64, len(bias))
	for top := 0; top+kernel <= height; top += stride {
		for left := 0; left+kernel <= width; left += stride {
			for k, b := range bias {
				sums[k] = float64(b)
			}
			for i := range kernel {
				from := ((top+i)*width + left) * depth
				for j, v := range x[from : from+kernel*depth] {
					at := (i*kernel*depth + j) * len(bias)
					for k, w := range weight[at : at+len(bias)] {
						sums[k] += float64(v) * float64(w)
					}
				}
			}
			for _, s := range sums {
				y = append(y, float32(s))
			}
		}
	}
	return y
}
`},
	{"layerNorm", []string{"math"}, `// layerNorm brings x to mean 0 and variance 1, multiplies by weight and adds bias.
func layerNorm(x, weight, bias []float32, epsilon float64) []float32 {
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
	}
	average := sum / float64(len(x))
	for _, v := range x {
		squares += (float64(v) - average) * (float64(v) - average)
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+epsilon)
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32((float64(v)-average)*scale)*weight[i] + bias[i]
	}
	return y
}
`},
	{"lookup", nil, `// lookup is the row of a table with the number x.
func lookup(x, table []float32, rows int) []float32 {
	k := int(x[0])
	if float32(k) != x[0] || k < 0 || k >= rows {
		panic(fmt.Sprintf("the observation %v has no row in a table of %d", x[0], rows))
	}
	width := len(table) / rows
	return append([]float32(nil), table[k*width:(k+1)*width]...)
}
`},
	{"relu", nil, `// relu is max(x, 0).
func relu(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = max(v, 0)
	}
	return y
}
`},
	{"tanh", []string{"math"}, `// tanh is the hyperbolic tangent.
func tanh(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(math.Tanh(float64(v)))
	}
	return y
}
`},
	{"sigmoid", []string{"math"}, `// sigmoid is 1 / (1 + exp(-x)).
func sigmoid(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
	return y
}
`},
	{"softmax", []string{"math", "slices"}, `// softmax is exp(x) over its sum, in each group of size values.
func softmax(x []float32, size int) []float32 {
	y := make([]float32, 0, len(x))
	for ; len(x) > 0; x = x[size:] {
		top, sum := slices.Max(x[:size]), 0.0
		for _, v := range x[:size] {
			sum += math.Exp(float64(v - top))
		}
		for _, v := range x[:size] {
			y = append(y, float32(math.Exp(float64(v-top))/sum))
		}
	}
	return y
}
`},
	{"add", nil, pairwise("add", "x + y", "v + y[i%len(y)]")},
	{"sub", nil, pairwise("sub", "x - y", "v - y[i%len(y)]")},
	{"mul", nil, pairwise("mul", "x * y", "v * y[i%len(y)]")},
	{"least", nil, pairwise("least", "the lesser of x and y", "min(v, y[i%len(y)])")},
	{"greatest", nil, pairwise("greatest", "the greater of x and y", "max(v, y[i%len(y)])")},
	{"scale", nil, `// scale multiplies by a number.
func scale(x []float32, by float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v * by
	}
	return y
}
`},
	{"shift", nil, `// shift adds a number.
func shift(x []float32, by float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v + by
	}
	return y
}
`},
	{"clip", nil, `// clip keeps x between low and high.
func clip(x []float32, low, high float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = min(max(v, low), high)
	}
	return y
}
`},
	{"mean", nil, `// mean is that of count values which are inner places apart.
func mean(x []float32, count, inner int) []float32 {
	y := make([]float32, len(x)/count)
	for i := range y {
		from := i/inner*count*inner + i%inner
		sum := 0.0
		for k := range count {
			sum += float64(x[from+k*inner])
		}
		y[i] = float32(sum / float64(count))
	}
	return y
}
`},
	{"argMax", nil, `// argMax is the index of the greatest value, of equal ones the first, in each group of size values.
func argMax(x []float32, size int) []int {
	var out []int
	for ; len(x) > 0; x = x[size:] {
		best := 0
		for i, v := range x[:size] {
			if v > x[best] {
				best = i
			}
		}
		out = append(out, best)
	}
	return out
}
`},
	{"offset", nil, `// offset adds a whole number.
func offset(x []int, by int) []int {
	y := make([]int, len(x))
	for i, v := range x {
		y[i] = v + by
	}
	return y
}
`},
	{"join", []string{"slices"}, `// join puts values one behind the other.
func join[T int | float32](values ...[]T) []T { return slices.Concat(values...) }
`},
}

// pairwise returns the text of a function of two values, the second of which is repeated.
func pairwise(name, what, expression string) string {
	return "// " + name + " is " + what + ", element by element. y is repeated if it has fewer.\nfunc " + name + `(x, y []float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = ` + expression + `
	}
	return out
}
`
}
