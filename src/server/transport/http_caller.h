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
  bool tls = false;  // https
};
// "http://HOST[:PORT][/PATH]", or https. kInvalidArgument for anything else.
Result<Url> ParseUrl(std::string_view text);

struct HttpCall {
  std::string target;  // after the URL's path
  std::string body;    // JSON; empty: the call is a GET
  std::vector<std::pair<std::string, std::string>> headers = {};
  double limit_seconds = 0;  // for the whole call; 0: there is none
};

// What comes back, in this order, on the thread of HttpCaller::Run.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // The request has been handed to the system's network. Twice where a kept connection turned out
  // to have ended, for the request goes again over a new one.
  virtual void OnSent() {}
  virtual void OnHead(int status) = 0;
  // A piece of the body. An error ends the call with it.
  virtual Status OnBody(std::string_view bytes) = 0;
  // Once, last: OK when the whole answer has come, whatever its status. kDeadlineExceeded when it
  // took too long, kUnavailable when the connection could not be made or ended early, kDataLoss
  // when what came is no HTTP.
  virtual void OnEnd(const Status& status) = 0;
};

// Owner: one thread, which runs everything.
class HttpCaller {
 public:
  struct Options {
    double timeout_seconds = 600;  // a call fails when nothing comes for so long
    std::string ca_file = {};      // CA certificates (PEM) for https, instead of the system's
    bool insecure = false;         // believe any server
    bool keep_alive = true;        // use connections again
  };
  // Looks the host up. kNotFound where there is none, kInvalidArgument for a ca_file that is none.
  static Result<std::unique_ptr<HttpCaller>> Create(const Url& url, const Options& options);
  ~HttpCaller();

  // Takes a connection that an earlier call is done with, or makes one: there are as many as calls
  // at a time. May be called before Run and from what Run calls.
  void Send(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  void After(double seconds, std::function<void()> call);  // to the microsecond; at once if <= 0
  // Works until no call and no timer is left, or until Stop.
  void Run();
  // Ends Run. Calls that are under way are dropped when the caller is destroyed: their receivers
  // hear no more. From what Run calls.
  void Stop();

 private:
  class Wire;
  struct Impl;
  explicit HttpCaller(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
