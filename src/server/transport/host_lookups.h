// Finds the addresses of host names while the I/O thread goes on. For this folder only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/transport/mailbox.h"
#include "tokamak/status.h"

namespace tokamak {

// The system's lookup takes as long as name servers like, and nothing can interrupt it. So each has
// a thread of its own, which can be abandoned: then it ends by itself and its answer is dropped. A
// name has at most one thread, however many wait for it, and the number of names is limited. Used
// only on the I/O thread.
class HostLookups {
 public:
  using Addresses = std::vector<std::string>;
  // Returns the addresses of a name; empty: there are none.
  using Resolve = std::function<Addresses(const std::string& host)>;

  // `resolve` is called on the lookups' threads, which may outlive this object; null: asks the
  // system.
  HostLookups(boost::asio::io_context& io, Resolve resolve, size_t max_names);

  // Waits for the addresses of `host`, but only until `patience` ends or is cancelled:
  // kDeadlineExceeded. kUnavailable if too many names are being looked up.
  boost::asio::awaitable<Result<Addresses>> Find(const std::string& host,
                                                 boost::asio::steady_timer& patience);
  // Drops answers that come later. Must be called before `io` ends.
  void Stop() { answers_.Close(); }

 private:
  struct Lookup;
  struct Answer {
    std::string host;
    Addresses addresses;
  };

  std::shared_ptr<Lookup> Join(const std::string& host);
  void OnAnswers();

  const Resolve resolve_;
  const size_t max_names_;
  Mailbox<Answer> answers_;
  std::map<std::string, std::shared_ptr<Lookup>> lookups_;  // those without an answer, by name
};

}  // namespace tokamak
