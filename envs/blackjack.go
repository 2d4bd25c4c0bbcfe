package envs

// BlackjackRules determines the value of a natural, an ace and a ten in the first
// two cards.
type BlackjackRules uint8

// The rules of Blackjack.
const (
	// SuttonBarto makes a player's natural win against everything but a
	// natural: Gymnasium's sab=True, which Blackjack-v1 registers.
	SuttonBarto BlackjackRules = iota
	// NoNatural makes a natural 21 like any other: sab=False, natural=False.
	NoNatural
	// Casino pays 1.5 for a win with a natural: sab=False, natural=True.
	Casino
)

// BlackjackConfig describes a Blackjack. The zero value is Blackjack-v1.
type BlackjackConfig struct {
	// MaxSteps is the time limit in time steps. 0 or a negative number mean
	// none: Gymnasium registers no limit.
	MaxSteps int
	// Rules determines the value of a natural.
	Rules BlackjackRules
}

// NewBlackjack returns one Blackjack-v1: draw cards (action 1) or stop (0), and
// come closer to 21 than the dealer without going over it. An ace counts 11
// where that is not too much, else 1. Cards are drawn with replacement. The
// dealer draws until 17. A win is worth 1, a loss -1, all else 0.
//
// The observation has three values: the sum of the player's cards, the
// dealer's first card (1 for an ace), and 1 if the player has an ace that counts
// 11.
//
// Source: example 5.1 of R. S. Sutton, A. G. Barto, "Reinforcement Learning: An
// Introduction" (2018), with the random numbers of Gymnasium's Blackjack-v1.
func NewBlackjack(cfg BlackjackConfig) Env[int] {
	return limited[int](&blackjack{core: core{name: "Blackjack-v1"}, rules: cfg.Rules}, cfg.MaxSteps, 0)
}

type blackjack struct {
	core
	rules          BlackjackRules
	player, dealer hand
	obs            [3]float32
}

// hand is the value of some cards.
type hand struct {
	sum, cards, aces, first int
	shown                   [22]int8 // the cards, which are only drawn; 0: not known
}

func (h *hand) add(card int) {
	if h.cards == 0 {
		h.first = card
	}
	if h.cards >= 0 && h.cards < len(h.shown) {
		h.shown[h.cards] = int8(card)
	}
	h.sum, h.cards = h.sum+card, h.cards+1
	if card == 1 {
		h.aces++
	}
}

// usable reports whether an ace counts 11.
func (h *hand) usable() bool { return h.aces > 0 && h.sum+10 <= 21 }

func (h *hand) total() int {
	if h.usable() {
		return h.sum + 10
	}
	return h.sum
}

// score returns the total, or 0 above 21.
func (h *hand) score() int {
	if t := h.total(); t <= 21 {
		return t
	}
	return 0
}

func (h *hand) natural() bool { return h.cards == 2 && h.aces == 1 && h.sum == 11 }

func (b *blackjack) ObservationSpace() Space { return MultiDiscrete{N: []int{32, 11, 2}} }

func (b *blackjack) ActionSpace() Space { return Discrete{N: 2} }

// card draws one of thirteen cards, of which four count 10.
func (b *blackjack) card() int { return min(b.rng.Choice(13)+1, 10) }

func (b *blackjack) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := b.begin(seed); err != nil {
		return nil, Info{}, err
	}
	b.dealer, b.player = hand{}, hand{}
	for _, h := range []*hand{&b.dealer, &b.dealer, &b.player, &b.player} {
		h.add(b.card())
	}
	// Gymnasium draws how the dealer's card looks: a suit, and one of the
	// three pictures for a ten.
	b.rng.Choice(4)
	if b.dealer.first == 10 {
		b.rng.Choice(3)
	}
	return b.observe(), Info{}, nil
}

func (b *blackjack) Step(action int) (Step, error) {
	if err := b.ready(); err != nil {
		return Step{}, err
	}
	if action != 0 && action != 1 {
		return Step{}, actionError(b.name, action, b.ActionSpace())
	}
	reward := 0.0
	if action == 1 {
		b.player.add(b.card())
		if b.over = b.player.total() > 21; b.over {
			reward = -1
		}
	} else {
		reward = b.stop()
	}
	return Step{Obs: b.observe(), Reward: reward, Terminated: b.over}, nil
}

// stop plays the dealer's cards and returns the reward.
func (b *blackjack) stop() float64 {
	b.over = true
	for b.dealer.total() < 17 {
		b.dealer.add(b.card())
	}
	reward := 0.0
	switch p, d := b.player.score(), b.dealer.score(); {
	case p > d:
		reward = 1
	case p < d:
		reward = -1
	}
	switch {
	case !b.player.natural():
	case b.rules == SuttonBarto && !b.dealer.natural():
		reward = 1
	case b.rules == Casino && reward == 1:
		reward = 1.5
	}
	return reward
}

func (b *blackjack) observe() []float32 {
	b.obs = [3]float32{float32(b.player.total()), float32(b.dealer.first), 0}
	if b.player.usable() {
		b.obs[2] = 1
	}
	return b.obs[:]
}

func (h *hand) fields() []*int { return []*int{&h.sum, &h.cards, &h.aces, &h.first} }

func (b *blackjack) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = b.appendCore(dst)
	for _, v := range append(b.player.fields(), b.dealer.fields()...) {
		dst = appendWords(dst, uint64(*v))
	}
	return dst, nil
}

func (b *blackjack) RestoreSnapshot(src []byte) ([]byte, error) {
	b.player.shown, b.dealer.shown = [22]int8{}, [22]int8{}
	rest, err := b.restoreInts(src, append(b.player.fields(), b.dealer.fields()...)...)
	for _, v := range append(b.player.fields(), b.dealer.fields()...) {
		if err == nil && (*v < 0 || *v > 40) { // a sum outside of this range would let the dealer draw without end
			b.started, err = false, badSnapshot(b.name)
		}
	}
	return rest, err
}
