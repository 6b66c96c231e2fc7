// The profile of an engine: the time of its steps, by operation (Engine::TakeProfile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tokamak {

// Time spent by an engine's steps, on its device and on the host.
struct Profile {
  struct Op {
    std::string name;  // "linear", "attention", ...; "graph": a whole CUDA graph
    int64_t calls = 0;
    double seconds = 0;
  };
  struct Steps {
    std::string kind;     // "decode": one token per sequence; "prefill": several; "mixed": both
    std::vector<Op> ops;  // most time first
    int64_t count = 0;
    double busy_seconds = 0;           // of all ops
    double inside_steps_seconds = 0;   // between the ops of a step
    double between_steps_seconds = 0;  // from the end of a step to the start of the next
    double longest_gap_seconds = 0;
    // The engine thread's time while there is work, measured from the end of one wait for a step to
    // the end of the next. host_waiting_seconds is the waiting in it. The rest is scheduling,
    // packing and launching (on a CPU also computing).
    double host_seconds = 0;
    double host_waiting_seconds = 0;
  };
  std::vector<Steps> steps;  // decode, prefill, mixed; kinds without steps are left out

  // One operation, or a whole step.
  struct Event {
    const char* name = "";     // a literal: Op::name, or "step"
    double begin_seconds = 0;  // since the engine's first operation
    double end_seconds = 0;
  };
  static constexpr size_t kMaxEvents = size_t{1} << 20;
  std::vector<Event> events;   // with EngineOptions::profile_events; a step follows its operations
  int64_t dropped_events = 0;  // events beyond kMaxEvents
};

}  // namespace tokamak
