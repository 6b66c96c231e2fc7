#include "server/transport/host_lookups.h"

#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

namespace asio = boost::asio;

HostLookups::Addresses AskSystem(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  HostLookups::Addresses addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST] = "";
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  ::freeaddrinfo(list);
  return addresses;
}

}  // namespace

struct HostLookups::Lookup {
  std::set<asio::steady_timer*> waiting;
  std::optional<Addresses> addresses;
};

HostLookups::HostLookups(asio::io_context& io, Resolve resolve, size_t max_names)
    : resolve_(resolve ? std::move(resolve) : AskSystem),
      max_names_(max_names),
      answers_(io, [this] { OnAnswers(); }) {}

asio::awaitable<Result<HostLookups::Addresses>> HostLookups::Find(const std::string& host,
                                                                  asio::steady_timer& patience) {
  const std::shared_ptr<Lookup> lookup = Join(host);
  if (lookup == nullptr) {
    co_return Unavailable("too many hosts of images are being looked up; try again later");
  }
  // Also ends when the coroutine is destroyed.
  struct Waiting {
    Lookup& lookup;
    asio::steady_timer& timer;
    ~Waiting() { lookup.waiting.erase(&timer); }
  } const waiting{*lookup, patience};
  lookup->waiting.insert(&patience);
  boost::system::error_code ended;
  auto token = asio::redirect_error(asio::use_awaitable, ended);
  co_await patience.async_wait(token);
  if (!lookup->addresses) {
    co_return Status(StatusCode::kDeadlineExceeded, "looking up the host: it took too long");
  }
  co_return *lookup->addresses;
}

// Returns the lookup of a name, which may have begun before. Null if there are too many.
std::shared_ptr<HostLookups::Lookup> HostLookups::Join(const std::string& host) {
  if (const auto found = lookups_.find(host); found != lookups_.end()) return found->second;
  if (lookups_.size() >= max_names_) return nullptr;
  auto look_up = [resolve = resolve_, host, sender = answers_.sender()] {
    sender.Put({host, resolve(host)});
  };
  try {
    std::thread(std::move(look_up)).detach();
  } catch (const std::system_error&) {  // the system has no more threads
    return nullptr;
  }
  return lookups_[host] = std::make_shared<Lookup>();
}

void HostLookups::OnAnswers() {
  for (Answer& answer : answers_.Take()) {
    const std::shared_ptr<Lookup> lookup = std::move(lookups_.extract(answer.host).mapped());
    lookup->addresses = std::move(answer.addresses);
    for (asio::steady_timer* timer : lookup->waiting) timer->cancel();
  }
}

}  // namespace tokamak
