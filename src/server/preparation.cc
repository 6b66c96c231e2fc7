#include "server/preparation.h"

namespace tokamak {

Preparation::Pending::Pending(Preparation& preparation, ResponseWriter& writer)
    : preparation_(preparation), writer_(writer) {
  preparation_.pending_.insert(this);
}

void Preparation::Pending::End() {
  if (preparation_.pending_.erase(this) > 0) preparation_.TellWhenPrepared();
}

void Preparation::StartDraining(std::function<void()> on_prepared) {
  draining_ = true;
  on_prepared_ = std::move(on_prepared);
  TellWhenPrepared();
}

void Preparation::Abandon() {
  for (Pending* request : pending_) {
    request->abandoned_ = true;
    request->writer_.Notify();
  }
}

void Preparation::Stop() {
  on_prepared_ = nullptr;
  pool_.Stop();
}

void Preparation::TellWhenPrepared() {
  if (pending_.empty() && on_prepared_) std::exchange(on_prepared_, nullptr)();
}

}  // namespace tokamak
