// For loops that wait for another thread without sleeping.
#pragma once

namespace tokamak {

// Tells the CPU that this thread spins, which leaves more of the core to others.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tokamak
