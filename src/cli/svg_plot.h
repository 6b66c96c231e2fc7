// Line charts as SVG, for reports: a grid of panels over the same x axis.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tokamak::cli {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending; not finite: left out
};

struct PlotPanel {
  std::string title;
  std::vector<PlotSeries> series;  // at most 4
  std::optional<double> limit;     // a dashed line across, such as an SLO
};

struct Plot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::vector<PlotPanel> panels;  // two in a row
};

// A whole SVG document, readable on light and on dark pages. An axis whose positive values span a
// factor of 8 or more is logarithmic; others begin at 0.
std::string PlotSvg(const Plot& plot);

// Values for an axis from `low` to `high`, at most about eight: multiples of 1, 2 or 5 times a
// power of ten; with `log`, 1, 2 and 5 times powers of ten (or powers alone, of a wide range). All
// lie within.
std::vector<double> AxisTicks(double low, double high, bool log);

}  // namespace tokamak::cli
