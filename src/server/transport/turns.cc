#include "server/transport/turns.h"

#include <chrono>

namespace tokamak {

void Turns::Join(const std::shared_ptr<Timer>& turn) {
  waiting_.push_back(turn);
  if (!pausing_) Give();
}

void Turns::Give() {
  pausing_ = !waiting_.empty();
  if (!pausing_) return;
  for (int given = 0; given < kAtOnce && !waiting_.empty(); waiting_.pop_front()) {
    const std::shared_ptr<Timer> turn = waiting_.front().lock();
    if (turn == nullptr) continue;
    turn->expires_at(Timer::time_point::min());
    ++given;
  }
  timer_.expires_after(std::chrono::milliseconds(kPauseMillis));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Give();
  });
}

}  // namespace tokamak
