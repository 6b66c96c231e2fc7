// Many HTTP requests at a time from one thread, for measuring servers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/transport/http_receiver.h"
#include "server/transport/url.h"
#include "tokamak/status.h"

namespace tokamak {

struct HttpCall {
  std::string target;  // appended to the URL's, without the slashes at its end
  std::string body;    // JSON; empty: a GET request
  std::vector<std::pair<std::string, std::string>> headers = {};
  double limit_seconds = 0;  // for the whole request; 0: no limit
};

// Owned by one thread, which runs everything.
class HttpCaller {
 public:
  struct Options {
    double timeout_seconds = 600;  // longest wait for the next byte
    std::string ca_file = {};      // CA certificates (PEM) for https, instead of the system's
    bool insecure = false;         // accept any certificate
    bool keep_alive = true;        // reuse connections
  };
  // Looks up the host. kNotFound if there is none, kInvalidArgument if ca_file holds no
  // certificates or the URL has a query.
  static Result<std::unique_ptr<HttpCaller>> Create(const Url& url, const Options& options);
  ~HttpCaller();

  // Sends a request over an idle connection or a new one: there are as many connections as requests
  // at a time. May be called before Run, and from what Run calls.
  void Send(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  void After(double seconds, std::function<void()> call);  // to the microsecond; at once if <= 0
  // Works until no request and no timer is left, or until Stop.
  void Run();
  // Ends Run. Must be called from what Run calls. Requests under way are dropped when the caller is
  // destroyed: their receivers are not called again.
  void Stop();

 private:
  struct Impl;
  explicit HttpCaller(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
