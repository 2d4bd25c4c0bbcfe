package nn

import (
	"fmt"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// image is the form of a row: height x width x channels, the channels of a pixel side by side.
type image struct{ height, width, channels int }

func (i image) size() int { return i.height * i.width * i.channels }

// Image returns the layer that changes nothing, and declares each row an image: height x
// width x channels, in row-major order with the channels of a pixel side by side (NHWC). A
// [Conv2D] further back needs to know. A stack of frames that comes as channels x height x width
// must be transposed before.
func Image(height, width, channels int) Layer {
	l := imageLayer{image{height, width, channels}}
	if height <= 0 || width <= 0 || channels <= 0 {
		panic(fmt.Sprintf("nn: image of %d x %d x %d", height, width, channels))
	}
	return l
}

type imageLayer struct{ image }

func (l imageLayer) Build(b *Builder, in int) int {
	if in != l.size() {
		panic(fmt.Sprintf("nn: image of %d x %d x %d in %d columns", l.height, l.width, l.channels, in))
	}
	b.image = l.image
	return in
}

func (imageLayer) Apply(_ *Tape, x Value) Value { return x }

// Conv2D returns a convolution with out channels: at every place of a window of kernel x kernel
// pixels, which moves by stride, a dense layer over the pixels of the window, the same at all
// places. The window stays inside of the image; pixels that remain at its right and lower edge are not
// read. An image comes from [Image] or from another convolution, possibly with layers between
// that do not change the number of columns. init fills the weight, of which the rows are the
// inputs of one window; the bias begins at 0. An activation that follows it in a network is
// computed with it.
//
// The network of V. Mnih et al., "Human-level control through deep reinforcement learning"
// (2015), for four frames:
//
//	net := nn.New(84*84*4, seed, nn.Image(84, 84, 4), nn.Scale(1.0/255),
//		nn.Conv2D(32, 8, 4, init), nn.ReLU(), nn.Conv2D(64, 4, 2, init), nn.ReLU(), nn.Conv2D(64, 3, 1, init), nn.ReLU(),
//		nn.Dense(512, init), nn.ReLU(), nn.Dense(actions, init))
//
// The channels of a pixel lie side by side (NHWC), because then a line of a window is one piece
// of memory, and the result of the product with the weights is an image of the same form: nothing
// is transposed.
func Conv2D(out, kernel, stride int, init Init) Layer {
	if out <= 0 || kernel <= 0 || stride <= 0 || init == nil {
		panic(fmt.Sprintf("nn: convolution of %d channels, kernel %d, stride %d", out, kernel, stride))
	}
	return &conv{out: out, kernel: kernel, stride: stride, init: init}
}

type conv struct {
	out, kernel, stride int
	init                Init
	act                 kernels.Activation
	from, to            image
	weight, bias        *Param
}

func (c *conv) Build(b *Builder, in int) int {
	c.from = b.image
	if c.from.size() != in {
		panic(fmt.Sprintf("nn: convolution of %d columns, which are no image", in))
	}
	if c.kernel > min(c.from.height, c.from.width) {
		panic(fmt.Sprintf("nn: convolution with kernel %d of an image of %d x %d", c.kernel, c.from.height, c.from.width))
	}
	c.to = image{(c.from.height-c.kernel)/c.stride + 1, (c.from.width-c.kernel)/c.stride + 1, c.out}
	c.weight, c.bias = b.affine("conv", []int{c.kernel, c.kernel, c.from.channels, c.out}, c.init)
	b.image = c.to
	return c.to.size()
}

func (c *conv) fuse(a kernels.Activation) { c.act = a }

// convRows is how many windows are worked on at a time, if they are more than those of one
// image: enough for the product, and few enough to stay in the cache.
const convRows = 512

// places returns the number of windows of an image; images is how many images are worked on at a time.
func (c *conv) places() int { return c.to.height * c.to.width }
func (c *conv) images() int { return max(1, convRows/c.places()) }

// windows is memory for the windows of that many images.
func (c *conv) windows(t *Tape, images int) Matrix {
	m := Matrix{Rows: images * c.places(), Cols: c.kernel * c.kernel * c.from.channels}
	m.Data = t.memory.take(m.Rows * m.Cols)
	return m
}

// first returns the windows of the first images.
func (c *conv) first(m Matrix, images int) Matrix {
	rows := images * c.places()
	return Matrix{rows, m.Cols, m.Data[:rows*m.Cols]}
}

func (c *conv) Apply(t *Tape, x Value) Value {
	in := x.node()
	in.matrix().check(c.from.size())
	out, n := t.result(c, in.rows, c.to.size(), x, x)
	n.needs = n.needs || t.trains(c.weight.net)
	src, w := x.node().matrix(), c.weight.matrix()
	per := min(c.images(), n.rows)
	all := c.windows(t, per)
	for at := 0; at < n.rows; at += per {
		m := c.first(all, min(per, n.rows-at))
		c.gather(m, src, at)
		kernels.Dense(&t.work, c.part(n.data, at, m.Rows).kernel(), m.kernel(), w.kernel(), c.bias.Value, c.act)
	}
	return out
}

// part is rows windows of a result, or of its gradient, from image at on.
func (c *conv) part(data []float32, at, rows int) Matrix {
	from := at * c.to.size()
	return Matrix{rows, c.out, data[from : from+rows*c.out]}
}

// backward changes the gradient of the result to that before the activation: nothing else reads
// it after this.
func (c *conv) backward(t *Tape, n *node) {
	src, w := t.nodes[n.a].matrix(), c.weight.matrix()
	trains := t.trains(c.weight.net)
	per := min(c.images(), n.rows)
	all := c.windows(t, per)
	var dx, back Matrix
	if t.needs(n.a) {
		dx, back = Matrix{src.Rows, src.Cols, t.gradOf(n.a)}, c.windows(t, per)
	}
	var dw kernels.Matrix
	var db []float32
	if trains {
		dw, db = c.weight.as(c.weight.Grad).kernel(), c.bias.Grad
	}
	for at := 0; at < n.rows; at += per {
		m := c.first(all, min(per, n.rows-at))
		if trains {
			c.gather(m, src, at)
		}
		var dm kernels.Matrix // of the windows
		if dx.Data != nil {
			dm = Matrix{m.Rows, m.Cols, back.Data[:len(m.Data)]}.kernel()
		}
		dy, y := c.part(n.grad, at, m.Rows).kernel(), c.part(n.data, at, m.Rows).kernel()
		kernels.DenseBackward(&t.work, dm, dw, db, dy, m.kernel(), y, w.kernel(), c.act)
		if dx.Data != nil {
			c.scatter(dx, Matrix{m.Rows, m.Cols, dm.Data}, at)
		}
	}
}

// gather copies the windows of the images from at on to the rows of m.
func (c *conv) gather(m, src Matrix, at int) {
	line := c.kernel * c.from.channels
	for i := range m.Rows {
		img, from := src.Row(at+i/c.places()), c.corner(i%c.places())
		for dst := m.Row(i); len(dst) > 0; dst = dst[line:] {
			copy(dst[:line], img[from:from+line])
			from += c.from.width * c.from.channels
		}
	}
}

// scatter adds the rows of m to the windows of the images from at on.
func (c *conv) scatter(dst, m Matrix, at int) {
	line := c.kernel * c.from.channels
	for i := range m.Rows {
		img, from := dst.Row(at+i/c.places()), c.corner(i%c.places())
		for src := m.Row(i); len(src) > 0; src = src[line:] {
			d := img[from : from+line]
			for j, g := range src[:line] {
				d[j] += g
			}
			from += c.from.width * c.from.channels
		}
	}
}

// corner returns the place in its image at which a window begins.
func (c *conv) corner(place int) int {
	y, x := place/c.to.width, place%c.to.width
	return (y*c.from.width + x) * c.stride * c.from.channels
}
