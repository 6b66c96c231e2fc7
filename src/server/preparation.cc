#include "server/preparation.h"

namespace tokamak {

Preparation::Call::Call(Preparation& preparation, ResponseWriter& writer)
    : preparation_(preparation), writer_(writer) {
  preparation_.calls_.insert(this);
}

void Preparation::Call::End() {
  if (preparation_.calls_.erase(this) > 0) preparation_.TellWhenPrepared();
}

void Preparation::StartDraining(std::function<void()> on_prepared) {
  draining_ = true;
  on_prepared_ = std::move(on_prepared);
  TellWhenPrepared();
}

void Preparation::Abandon() {
  for (Call* call : calls_) {
    call->abandoned_ = true;
    call->writer_.Notify();
  }
}

void Preparation::Stop() {
  on_prepared_ = nullptr;
  pool_.Stop();
}

void Preparation::TellWhenPrepared() {
  if (calls_.empty() && on_prepared_) std::exchange(on_prepared_, nullptr)();
}

}  // namespace tokamak
