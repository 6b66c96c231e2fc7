// The functions that code compiled with -fsanitize=thread calls at its accesses to memory. Here
// they stand in for ThreadSanitizer's and tell the trace; nothing is linked with that library.
#include <cstddef>
#include <cstdint>

#include "ops/cuda/emulation/memory_trace.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compiler's
using tokamak::cuda::emulation::MemoryTrace;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ACCESS(name, bytes, writes)                                              \
  void __tsan_##name(const void* memory) {                                       \
    MemoryTrace::NoteAccess(__builtin_return_address(0), memory, bytes, writes); \
  }
#define ACCESSES(bytes)                       \
  ACCESS(read##bytes, bytes, false)           \
  ACCESS(write##bytes, bytes, true)           \
  ACCESS(unaligned_read##bytes, bytes, false) \
  ACCESS(unaligned_write##bytes, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(const void* memory, size_t bytes) {
  MemoryTrace::NoteAccess(__builtin_return_address(0), memory, bytes, false);
}
void __tsan_write_range(const void* memory, size_t bytes) {
  MemoryTrace::NoteAccess(__builtin_return_address(0), memory, bytes, true);
}

// The compiler replaces atomics by these, so they have to do them too. An atomic counts as a store.
#define ATOMICS(bits, type)                                                                        \
  type __tsan_atomic##bits##_load(const volatile type* at, int) {                                  \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile type* at, type value, int) {                           \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* at, type* expected, type value, \
                                                    int, int) {                                    \
    NOTE_ATOMIC;                                                                                   \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,               \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  ATOMIC(bits, type, exchange, __atomic_exchange_n)                                                \
  ATOMIC(bits, type, fetch_add, __atomic_fetch_add)                                                \
  ATOMIC(bits, type, fetch_sub, __atomic_fetch_sub)                                                \
  ATOMIC(bits, type, fetch_or, __atomic_fetch_or)                                                  \
  ATOMIC(bits, type, fetch_and, __atomic_fetch_and)
#define NOTE_ATOMIC                                                                       \
  MemoryTrace::NoteAccess(__builtin_return_address(0),                                    \
                          const_cast<const void*>(static_cast<const volatile void*>(at)), \
                          sizeof(*at), true)
#define ATOMIC(bits, type, name, builtin)                                 \
  type __tsan_atomic##bits##_##name(volatile type* at, type value, int) { \
    NOTE_ATOMIC;                                                          \
    return builtin(at, value, __ATOMIC_SEQ_CST);                          \
  }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}
// NOLINTEND(bugprone-reserved-identifier)
