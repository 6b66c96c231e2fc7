// Line charts as SVG for reports: a grid of panels with the same x axis.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tokamak::loadgen {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending; skips non-finite points
};

struct PlotPanel {
  std::string title;
  std::vector<PlotSeries> series;  // at most 4
  std::optional<double> limit;     // a dashed horizontal line, such as an SLO
};

struct Plot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::vector<PlotPanel> panels;  // two in a row
};

// Returns an SVG document that is readable on light and dark pages. An axis whose positive values
// span a factor of 8 or more is logarithmic; other axes begin at 0.
std::string PlotSvg(const Plot& plot);

// Returns at most about eight ticks in [low, high]: multiples of 1, 2 or 5 times a power of ten.
// With `log`: 1, 2 and 5 times powers of ten, or only powers of ten for a wide range.
std::vector<double> AxisTicks(double low, double high, bool log);

}  // namespace tokamak::loadgen
