// The files of the web page. The build makes them from src/server/page/ (cmake/TokamakPage.cmake).
#pragma once

#include <span>
#include <string_view>

namespace tokamak {

struct PageAsset {
  std::string_view path;          // "/", "/page/app.js"
  std::string_view content_type;  // "text/javascript; charset=utf-8"
  std::string_view digest;        // of the content
  std::string_view plain;         // the content
  std::string_view gzip;          // compressed content; empty: plain is compressed already
};

// Empty in a build without the page.
std::span<const PageAsset> PageAssets();

}  // namespace tokamak
