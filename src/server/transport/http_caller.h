// Many HTTP calls at a time from one thread, for measuring servers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

struct Url {
  std::string host;
  std::string port;
  std::string path;  // "" or "/...", without a '/' at its end
};
// "http://HOST[:PORT][/PATH]". kUnimplemented for https, kInvalidArgument for anything else.
Result<Url> ParseUrl(std::string_view text);

struct HttpCall {
  std::string target;  // after the URL's path
  std::string body;    // JSON
  std::vector<std::pair<std::string, std::string>> headers;
};

// What comes back, in this order, on the thread of HttpCaller::Run.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  virtual void OnHead(int status) = 0;
  // A piece of the body. An error ends the call with it.
  virtual Status OnBody(std::string_view bytes) = 0;
  // Once, last: OK when the whole answer has come, whatever its status.
  virtual void OnEnd(const Status& status) = 0;
};

// Owner: one thread, which runs everything.
class HttpCaller {
 public:
  // Looks the host up. A call fails when nothing comes for `timeout_seconds`.
  static Result<std::unique_ptr<HttpCaller>> Create(const Url& url, double timeout_seconds);
  ~HttpCaller();

  // Each POST has a connection of its own. May be called before Run and from what Run calls.
  void Post(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  void After(double seconds, std::function<void()> call);
  // Works until no call and no timer is left.
  void Run();

 private:
  struct Impl;
  explicit HttpCaller(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
