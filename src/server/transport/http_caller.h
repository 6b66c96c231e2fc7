// Many HTTP requests at a time from one thread, for measuring servers.
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
  std::string path;  // "" or "/...", without a trailing '/'
  bool tls = false;  // https
};
// Parses "http://HOST[:PORT][/PATH]", or the same with https. kInvalidArgument for anything else.
Result<Url> ParseUrl(std::string_view text);

struct HttpCall {
  std::string target;  // appended to the URL's path
  std::string body;    // JSON; empty: a GET request
  std::vector<std::pair<std::string, std::string>> headers = {};
  double limit_seconds = 0;  // for the whole request; 0: no limit
};

// Gets the response, in the order of these methods, on the thread of HttpCaller::Run.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // The whole request was written to the connection. Called twice if a kept connection had ended,
  // because the request is then sent again over a new one.
  virtual void OnSent() {}
  virtual void OnHead(int status) = 0;
  // A piece of the body. An error ends the request with it.
  virtual Status OnBody(std::string_view bytes) = 0;
  // Called once, last. OK if the whole response has come, whatever its status. kDeadlineExceeded if
  // it took too long, kUnavailable if the connection could not be made or ended early, kDataLoss if
  // the response is not HTTP.
  virtual void OnEnd(const Status& status) = 0;
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
  // certificates.
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
  class Wire;
  struct Impl;
  explicit HttpCaller(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
