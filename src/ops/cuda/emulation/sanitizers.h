// What the emulator tells the sanitizers; without them, nothing here does anything.
//
// AddressSanitizer is told of each switch between stacks.
//
// For ThreadSanitizer each CUDA thread is a thread of its own, called a context. Only what orders
// memory on a GPU orders two contexts: a Clock passes on what one of them has done. The emulator
// itself runs in the context of the OS thread that called it and records nothing: its sources are
// compiled without the instrumentation, and the interceptors (malloc, memcpy) are off while a
// kernel runs. TMA and wgmma act in contexts too, which know only what a fence.proxy.async has
// shown to them.
#pragma once

#include <sanitizer/common_interface_defs.h>
#include <sanitizer/tsan_interface.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

// These are in ThreadSanitizer's library, but not in its headers.
// NOLINTBEGIN(bugprone-reserved-identifier): the names are its own
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_read_range(const void* memory, size_t bytes);
void __tsan_write_range(void* memory, size_t bytes);
void __tsan_atomic8_store(volatile void* at, unsigned char value, int order);
uint64_t __tsan_atomic64_load(const volatile void* at, int order);
void __tsan_java_alloc(uintptr_t memory, size_t bytes);
void __tsan_java_free(uintptr_t memory, size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace tokamak::cuda::emulation::sanitizers {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddress = true;
#else
inline constexpr bool kAddress = false;
#endif

#ifdef TOKAMAK_THREAD_SANITIZER  // CMake's: with instrumentation off, the compiler defines no macro
inline constexpr bool kThread = true;
#else
inline constexpr bool kThread = false;
#endif

// Call it before a switch to the stack [bottom, bottom + bytes). Keeps in *fake_stack what
// FinishSwitch needs when the fiber being left resumes.
inline void StartSwitch(void** fake_stack, const void* bottom, size_t bytes) {
  if constexpr (kAddress) __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}
// Call FinishSwitch after the switch. It returns the bounds of the stack that was left.
struct Stack {
  const void* bottom = nullptr;
  size_t bytes = 0;
};
inline Stack FinishSwitch(void* fake_stack) {
  Stack left;
  if constexpr (kAddress) {
    __sanitizer_finish_switch_fiber(fake_stack, &left.bottom, &left.bytes);
  }
  return left;
}

using Context = void*;  // null in other builds

inline Context CurrentContext() { return kThread ? __tsan_get_current_fiber() : nullptr; }

// Makes the OS thread act in `context` from here on. This alone orders nothing.
inline void Enter(Context context) {
  if constexpr (kThread) __tsan_switch_to_fiber(context, __tsan_switch_to_fiber_no_sync);
}
// Does the same, and orders all that was done in the context being left before what follows.
inline void EnterAfter(Context context) {
  if constexpr (kThread) __tsan_switch_to_fiber(context, 0);
}

// Makes a context. What the current one has done so far happens before what the new one will do.
inline Context BeginContext() { return kThread ? __tsan_create_fiber(0) : nullptr; }
// Destroys contexts late, the oldest first: ThreadSanitizer reports no race with a context that it
// has forgotten.
inline void EndContext(Context context) {
  if constexpr (kThread) {
    constexpr size_t kKept = 1024;
    static std::deque<Context> ended;
    if (context != nullptr) ended.push_back(context);
    if (ended.size() <= kKept) return;
    __tsan_destroy_fiber(ended.front());
    ended.pop_front();
  }
}

// Acts in another context until the end of the scope.
class In {
 public:
  explicit In(Context context) { Enter(context); }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  ~In() { Enter(before_); }

 private:
  Context before_ = CurrentContext();
};

// Orders what was done so far in the first context before what the second does from here on.
inline void Order(Context before, Context after) {
  const In in(before);
  EnterAfter(after);
}
// Makes a context that knows all that `from` has done up to here.
inline Context Fork(Context from) {
  const In in(from);
  return BeginContext();
}

// Records no accesses until the end of the scope; memory allocated meanwhile counts as untouched.
class Unrecorded {
 public:
  Unrecorded() {
    if constexpr (kThread) {
      AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
      AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
  }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
  ~Unrecorded() {
    if constexpr (kThread) {
      AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
      AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
  }
};

// Note accesses that the emulator's code makes for a CUDA thread, or for what acts on its behalf.
inline void NoteRead(Context context, const void* memory, size_t bytes) {
  const In in(context);
  if constexpr (kThread) __tsan_read_range(memory, bytes);
}
inline void NoteWrite(Context context, void* memory, size_t bytes) {
  const In in(context);
  if constexpr (kThread) __tsan_write_range(memory, bytes);
}
// Notes an instruction on an mbarrier: it races with plain accesses, but not with its own kind.
inline void NoteAtomic(Context context, const uint64_t* word) {
  const In in(context);
  if constexpr (kThread) (void)__tsan_atomic64_load(word, __ATOMIC_RELAXED);
}

// Forgets what was done on this stack below the caller's frame, because another CUDA thread will
// use it.
[[gnu::always_inline]] inline void ForgetStack() {
  constexpr uintptr_t kUsed = 32 << 10;  // more than any kernel uses; a whole stack takes long
  if constexpr (kThread) {
    const auto end = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~uintptr_t{63};
    __tsan_java_free(end - kUsed, sizeof(uint64_t));  // the block that was noted the last time
    __tsan_java_alloc(end - kUsed, kUsed);
  }
}

// Orders what a context did before Release before what another one does after Acquire.
class Clock {
 public:
  void Release(Context context) {
    const In in(context);
    if constexpr (kThread) __tsan_release(this);
  }
  // With `is_first`, also drops what was released before.
  void Release(Context context, bool is_first) {
    if (!is_first) return Release(context);
    const In in(context);
    if constexpr (kThread) __tsan_atomic8_store(&place_, 0, __ATOMIC_RELEASE);
  }
  void Acquire(Context context) {
    const In in(context);
    if constexpr (kThread) __tsan_acquire(this);
  }

 private:
  unsigned char place_ = 0;
};

// The contexts that act for one CUDA thread. Its functions are called in the emulator's context,
// which knows what was done before the kernel began.
class Actor {
 public:
  Context context = nullptr;

  // Returns the context in which TMA and wgmma work for this thread. It knows their earlier work
  // that was waited for, and what the thread did up to its last fence.proxy.async.
  Context Fenced() {
    is_used_ = true;
    if (kThread && fenced_ == nullptr) fenced_ = BeginContext();
    return fenced_;
  }
  // False until the first call of Fenced: until then nothing needs to be passed on.
  static bool IsFencedUsed() { return is_used_; }
  void End() {
    if constexpr (kThread) {
      if (fenced_ != nullptr) __tsan_destroy_fiber(fenced_);  // it touched no memory
    }
    fenced_ = nullptr;
  }

 private:
  static inline bool is_used_ = false;
  Context fenced_ = nullptr;
};

// Orders what was done so far in `before` before what the thread, and TMA and wgmma for it, do from
// here on.
inline void Order(Context before, Actor& after) {
  Order(before, after.context);
  if (Actor::IsFencedUsed()) Order(before, after.Fenced());
}

// The clocks of something that threads wait for.
class Clocks {
 public:
  void Release(Context context) {
    all_.Release(context);
    fenced_.Release(context);
  }
  void Release(Actor& actor, bool is_first) {
    all_.Release(actor.context, is_first);
    if (Actor::IsFencedUsed()) fenced_.Release(actor.Fenced(), is_first);
  }
  void Acquire(Actor& actor) {
    all_.Acquire(actor.context);
    if (Actor::IsFencedUsed()) fenced_.Acquire(actor.Fenced());
  }

 private:
  Clock all_, fenced_;
};

// The copies by cp.async of one CUDA thread. They are made in a context of their own, which knows
// what the thread had done when it issued them.
class Copies {
 public:
  Copies() = default;
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() { EndContext(context_); }

  void Copy(Context issuer, void* to, size_t bytes, const void* from, size_t from_bytes) {
    if constexpr (kThread) {
      if (context_ == nullptr) context_ = BeginContext();
      Order(issuer, context_);
      NoteWrite(context_, to, bytes);
      NoteRead(context_, from, from_bytes);
    }
  }
  // Orders the copies so far before what comes after the clock's or the clocks' Acquire.
  void Release(Clock& clock) {
    if (context_ != nullptr) clock.Release(context_);
  }
  void Release(Clocks& clocks) {
    if (context_ != nullptr) clocks.Release(context_);
  }
  // Makes a group of the copies since the last Commit.
  void Commit() { Release(groups_[num_groups_++ % groups_.size()]); }
  // Waits for all groups but the last `pending`.
  void Wait(Context issuer, size_t pending) {
    if (num_groups_ <= pending) return;
    groups_[(num_groups_ - pending - 1) % groups_.size()].Acquire(issuer);
  }

 private:
  Context context_ = nullptr;
  size_t num_groups_ = 0;
  std::array<Clock, 16> groups_;  // of the last groups; no kernel has more under way
};

}  // namespace tokamak::cuda::emulation::sanitizers
