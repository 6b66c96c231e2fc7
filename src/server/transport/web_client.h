// Fetches files from the web, from hosts that the operator allows.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/transport/allowed_hosts.h"
#include "tokamak/status.h"

namespace boost::asio {
class io_context;
}

namespace tokamak {

// Clients of the server may name any address, so this defends the server's own network: a URL has
// one reading (ParseUrl), its host and port are allowed, the host is looked up once, and the
// connection goes to one of the addresses that were checked. All of this holds for every redirect,
// too. Used only on the I/O thread, except Check.
class WebClient {
 public:
  struct Options {
    AllowedHosts hosts = {};
    size_t max_bytes = 32 << 20;
    double timeout_seconds = 20;  // for a file, with all redirects
    int max_redirects = 5;
    size_t max_fetches = 256;  // under way
    size_t max_bytes_together = 256 << 20;
    size_t max_lookups = 64;   // names being looked up, those that nobody waits for any more too
    std::string ca_file = {};  // CA certificates (PEM), instead of the system's
    // Returns the addresses of a name. May take long; called on other threads, also after the
    // client's end. Null: asks the system.
    std::function<std::vector<std::string>(const std::string& host)> resolve = {};

    // Returns how many sockets may be open at a time: a lookup may have two.
    size_t max_open_sockets() const { return max_fetches + 2 * max_lookups; }
  };
  // The bytes of all files together are limited as long as `counted` of each lives.
  struct File {
    std::string bytes;
    std::shared_ptr<const void> counted;
  };
  using OnFile = std::function<void(Result<File>)>;

  // `io` must not end before Stop. kInvalidArgument if ca_file holds no certificates.
  static Result<std::unique_ptr<WebClient>> Create(boost::asio::io_context& io, Options options);
  ~WebClient();  // calls Stop
  // Lookups under way bring no result from now on.
  void Stop();

  // Refuses URLs that are malformed or whose host is not allowed: kInvalidArgument. Thread-safe.
  Status Check(std::string_view url) const;

  // Stops fetching when destroyed.
  class Fetch {
   public:
    Fetch(const Fetch&) = delete;
    Fetch& operator=(const Fetch&) = delete;
    ~Fetch();

   private:
    friend class WebClient;
    struct State;
    explicit Fetch(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };
  // Fetches a file. `on_file` is called once, later, unless the result is destroyed before.
  // kInvalidArgument says why there is no file, kResourceExhausted that it is too long,
  // kUnavailable that too much is being fetched.
  std::unique_ptr<Fetch> Get(std::string url, OnFile on_file);

 private:
  struct Impl;
  explicit WebClient(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tokamak
