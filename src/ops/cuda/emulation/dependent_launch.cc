// Dependent launch. As drawn, a kernel begins as soon as all CTAs of the kernel ahead have called
// LaunchDependents or ended, or only when that kernel has ended. In the first case the threads that
// called it pause until the new kernel cannot go on without them. So the new kernel finds the
// memory as it is before they write.
#include <algorithm>
#include <utility>

#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/primitives.h"

namespace tokamak::cuda::emulation {
namespace {

// The maximum number of kernels that begin before those ahead of them have ended. It is small,
// because their threads take memory.
constexpr int kMaxOverlapping = 2;

std::vector<Thread*> paused;

std::string DescribePause(const Thread&) { return "the kernel behind to begin"; }
std::string DescribeAhead(const Thread&) { return "the kernel ahead to end"; }

}  // namespace

bool WakePaused() {
  if (paused.empty()) return false;
  for (Thread* thread : std::exchange(paused, {})) WakeThread(*thread);
  return true;
}

void Grid::SetKernelBehind(Grid& next) {
  if (!next.launch_.dependent) return;
  behind_ = &next;
  next.ahead_ = this;
  begins_behind_early_ = Choose(2) == 0;
}

Grid* Grid::OverlappingKernel() const {
  return behind_ != nullptr && behind_->has_begun_ ? behind_ : nullptr;
}

void Grid::BeginKernelBehind() {
  if (behind_ == nullptr || behind_->has_begun_ || !begins_behind_early_ || !order_.empty()) return;
  const auto is_over = [](const auto& cta) { return cta->triggered || cta->running == 0; };
  if (!std::all_of(resident_.begin(), resident_.end(), is_over)) return;
  int overlapping = 1;
  for (const Grid* grid = this; grid->ahead_ != nullptr; grid = grid->ahead_) ++overlapping;
  if (overlapping <= kMaxOverlapping) behind_->StartCtas();
}

void Grid::WaitForKernelAhead(const void* at) {
  has_waited_ = true;
  if (ahead_ != nullptr) {
    waiting_for_ahead_.push_back(&CurrentThread());
    WaitForWake(&DescribeAhead, at);
  }
  // Everything that ended kernels did is ordered before the emulator's context, so this orders it
  // before what the thread does next.
  sanitizers::Order(sanitizers::CurrentContext(), CurrentThread().actor);
}

void Grid::End() {
  if (launch_.dependent && !has_waited_) {
    Fail(
        "no thread of a dependent launch has called WaitForKernelAhead: the kernels behind it may "
        "begin before the kernel ahead of it has ended\n" +
        Waiting());
  }
  if (behind_ == nullptr) return;
  behind_->ahead_ = nullptr;
  for (Thread* thread : std::exchange(behind_->waiting_for_ahead_, {})) WakeThread(*thread);
}

void LaunchDependents() {
  const InMachine in;
  Cta& cta = *CurrentThread().cta;
  cta.triggered = true;
  cta.grid->BeginKernelBehind();
  if (cta.grid->OverlappingKernel() == nullptr) return;
  paused.push_back(&CurrentThread());
  WaitForWake(&DescribePause, __builtin_return_address(0));
}

void WaitForKernelAhead() {
  const InMachine in;
  CurrentThread().cta->grid->WaitForKernelAhead(__builtin_return_address(0));
}

}  // namespace tokamak::cuda::emulation
