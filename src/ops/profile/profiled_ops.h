// A backend that also notes when each of its operations began and ended. Results are those of the
// backend inside; the notes cost it a few microseconds per operation.
#pragma once

#include <memory>

#include "ops/ops.h"
#include "tokamak/engine.h"

namespace tokamak {

// Owner: as Ops, but for Take.
class ProfiledOps : public Ops {
 public:
  // What has been done, and waited for, since the last call. A step ends with the Record of the
  // event that is waited for, on the stream that computes. From any thread.
  virtual Profile Take() = 0;
};

// With `keep_events`, Profile::events has each operation too.
std::unique_ptr<ProfiledOps> MakeProfiledOps(std::unique_ptr<Ops> inner, bool keep_events = false);

}  // namespace tokamak
