#include "server/page/page.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "server/page/page_assets.h"

namespace tokamak {
namespace {

// Returns whether an Accept-Encoding names gzip with a weight above 0 (RFC 9110, section 12.5.3).
// "*" does not count: clients that only send that may not decompress.
bool AcceptsGzip(std::string_view accepted) {
  for (const std::string_view element : Split(accepted, ',')) {
    const size_t semicolon = std::min(element.find(';'), element.size());
    if (!EqualIgnoringCase(Trim(element.substr(0, semicolon)), "gzip")) continue;
    const std::string_view weight = Trim(element.substr(std::min(semicolon + 1, element.size())));
    return !weight.starts_with("q=0") || weight.find_first_of("123456789") != weight.npos;
  }
  return false;
}

// Returns whether an If-None-Match lists `etag`, weak or strong (section 13.1.2).
bool Lists(std::string_view tags, std::string_view etag) {
  for (std::string_view tag : Split(tags, ',')) {
    tag = Trim(tag);
    if (tag == "*") return true;
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag == etag) return true;
  }
  return false;
}

const PageAsset* Find(std::string_view path) {
  for (const PageAsset& asset : PageAssets()) {
    if (asset.path == path) return &asset;
  }
  return nullptr;
}

}  // namespace

bool IsPage(std::string_view path) { return Find(path) != nullptr; }

HttpResponse PageResponse(const HttpRequest& request) {
  const PageAsset* const asset = Find(request.path);
  CHECK_MSG(asset != nullptr, request.path);
  const bool gzip = !asset->gzip.empty() && AcceptsGzip(request.Header("accept-encoding"));
  const std::string etag = '"' + std::string(asset->digest) + (gzip ? "-gzip\"" : "\"");
  HttpResponse response;
  // Browsers ask again each time, which costs a 304. So after an upgrade no old file is used with a
  // new one.
  response.headers = {{"Cache-Control", "no-cache"}, {"ETag", etag}, {"Vary", "Accept-Encoding"}};
  if (Lists(request.Header("if-none-match"), etag)) {
    response.status = 304;
    response.content_type = "";
    return response;
  }
  response.content_type = asset->content_type;
  response.body = gzip ? asset->gzip : asset->plain;
  if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

}  // namespace tokamak
