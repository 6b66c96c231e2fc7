// Turns for requests that were sent before the answer to the one before them. For this folder.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>

namespace tokamak {

// A client can send a thousand requests at once, and many clients can; without turns, every event
// of others would wait for one request of each of them. Here all of them together get kAtOnce
// requests per kPauseMillis. A client that waits for its answers never takes a turn.
//
// Used on the I/O thread alone.
class Turns {
 public:
  using Timer = boost::asio::steady_timer;
  static constexpr int kAtOnce = 4;  // a small request takes about 20 us
  static constexpr int kPauseMillis = 1;

  explicit Turns(boost::asio::io_context& io) : timer_(io) {}

  // Lets `turn`, a timer that never expires, expire when the time has come. Who lets go of it has
  // given its turn up.
  void Join(const std::shared_ptr<Timer>& turn);

 private:
  void Give();

  Timer timer_;
  bool pausing_ = false;
  std::deque<std::weak_ptr<Timer>> waiting_;
};

}  // namespace tokamak
