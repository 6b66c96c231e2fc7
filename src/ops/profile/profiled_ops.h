// A backend that records when each operation of an inner backend begins and ends, which costs a few
// microseconds per operation.
#pragma once

#include <memory>

#include "ops/ops.h"
#include "tokamak/profile.h"

namespace tokamak {

// Owner: as for Ops, except Take.
class ProfiledOps : public Ops {
 public:
  // Returns the operations and waits since the last call. A step ends with the Record of the event
  // that the host waits for, on the stream that computes. Thread-safe.
  virtual Profile Take() = 0;
};

// With `keep_events`, Profile::events also lists each operation.
std::unique_ptr<ProfiledOps> MakeProfiledOps(std::unique_ptr<Ops> inner, bool keep_events = false);

}  // namespace tokamak
