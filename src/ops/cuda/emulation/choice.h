// Draws what hardware leaves open, such as which thread goes first. TOKAMAK_EMULATION_SEED gives
// the seed (default: 1). With seed 0 nothing is random: the last choice is always taken.
#pragma once

#include <cstdint>

namespace tokamak::cuda::emulation {

extern const uint64_t kChoiceSeed;
extern uint64_t choice_state;

inline uint64_t MixBits(uint64_t bits) {  // SplitMix64
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// Returns a choice in [0, count) made from random bits; count < 2^32.
inline uint64_t ChooseBy(uint64_t bits, uint64_t count) {
  return kChoiceSeed == 0 ? count - 1 : (bits >> 32) * count >> 32;
}

// Equal sequences of calls give equal choices.
inline uint64_t Choose(uint64_t count) {
  return ChooseBy(MixBits(choice_state += 0x9e3779b97f4a7c15), count);
}

// Returns the same choice whenever it is called for the same `what`.
inline uint64_t ChooseFor(uint64_t what, uint64_t count) {
  return ChooseBy(MixBits(MixBits(what) + kChoiceSeed), count);
}

}  // namespace tokamak::cuda::emulation
