// Turns for requests that clients sent before the response to the previous one. For this folder
// only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>

namespace tokamak {

// A client can send a thousand requests at once, and many clients can do so. Without turns, all
// other work would wait for one request of each of them. With turns, all of them together get
// kAtOnce requests per kPauseMillis. Clients that wait for each response need no turn.
//
// Used only on the I/O thread.
class Turns {
 public:
  using Timer = boost::asio::steady_timer;
  static constexpr int kAtOnce = 4;  // a small request takes about 20 us
  static constexpr int kPauseMillis = 1;

  explicit Turns(boost::asio::io_context& io) : timer_(io) {}

  // Queues a timer that never expires by itself, and expires it when its turn comes. Destroying the
  // timer gives up the turn.
  void Join(const std::shared_ptr<Timer>& turn);

 private:
  void Give();

  Timer timer_;
  bool pausing_ = false;
  std::deque<std::weak_ptr<Timer>> waiting_;
};

}  // namespace tokamak
