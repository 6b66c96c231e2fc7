#include "loadgen/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace tokamak::loadgen {
namespace {

constexpr double kPanelWidth = 440, kPanelHeight = 250;             // of the area between the axes
constexpr double kLeft = 72, kTop = 44, kRight = 20, kBottom = 52;  // margins around it
constexpr double kHead = 70;                                        // above the panels
constexpr size_t kColumns = 2;
constexpr double kLogFrom = 8;  // an axis with this range or more is logarithmic

constexpr char kStyle[] = R"(<style>
svg { --ink: #1f2328; --faint: #59636e; --grid: #d8dee4; --page: #ffffff;
  --c0: #0969da; --c1: #bc4c00; --c2: #8250df; --c3: #1a7f37; --limit: #cf222e; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #9198a1; --grid: #30363d; --page: #0d1117;
    --c0: #58a6ff; --c1: #f0883e; --c2: #bc8cff; --c3: #3fb950; --limit: #ff7b72; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 17px; font-weight: 600; }
.panel { font-size: 13px; font-weight: 600; }
.faint { fill: var(--faint); }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--faint); }
.limit { stroke: var(--limit); stroke-dasharray: 6 4; stroke-width: 1.5; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
</style>
)";

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';  // most control characters are not allowed in XML
    } else {
      out += c;
    }
  }
  return out;
}

std::string Text(double x, double y, std::string_view classes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes,
                     Escape(text));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, classes);
}

// Formats "1500", "0.25", "2M": short enough for a tick.
std::string TickText(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  return fmt::format("{:.6g}", value);
}

// The range of an axis and its position on the page.
class Axis {
 public:
  Axis(const std::vector<double>& values, double from, double to) : from_(from), to_(to) {
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (const double value : values) {
      high = std::max(high, value);
      if (value > 0) low = std::min(low, value);
    }
    if (!(high > 0)) {
      low = 0;
      high = 1;
    }
    const bool has_zero =
        std::any_of(values.begin(), values.end(), [](double v) { return v <= 0; });
    log_ = low > 0 && !has_zero && high >= low * kLogFrom;
    low_ = log_ ? low / 1.15 : 0;
    high_ = log_ ? high * 1.15 : high * 1.06;
  }

  double At(double value) const {
    const double share = log_ ? (std::log(value) - std::log(low_)) / (std::log(high_ / low_))
                              : (value - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }
  std::vector<double> Ticks() const { return AxisTicks(low_, high_, log_); }
  bool Shows(double value) const { return std::isfinite(value) && value >= low_ && value <= high_; }

 private:
  double from_, to_;
  double low_ = 0, high_ = 1;
  bool log_ = false;
};

std::string DrawSeries(const PlotSeries& series, size_t color, const Axis& x, const Axis& y) {
  std::string path, marks;
  for (const auto& [px, py] : series.points) {
    if (!x.Shows(px) || !y.Shows(py)) continue;
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x.At(px), y.At(py));
    marks += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" style=\"fill: var(--c{})\">"
        "<title>{}: {:g} at {:g}</title></circle>\n",
        x.At(px), y.At(py), color, Escape(series.name), py, px);
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"line\" style=\"stroke: var(--c{})\" d=\"{}\"/>\n{}", color,
                     path, marks);
}

// Draws the names of the series in a row that ends at `right`.
std::string DrawLegend(const PlotPanel& panel, double right, double top) {
  std::string out;
  double x = right;
  for (size_t i = panel.series.size(); i-- > 0;) {
    const std::string& name = panel.series[i].name;
    x -= 7.0 * static_cast<double>(name.size());
    out += Text(x, top, "faint", name);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"4\" style=\"fill: var(--c{})\"/>\n",
        x - 14, top - 6, i);
    x -= 26;
  }
  return out;
}

std::string DrawPanel(const PlotPanel& panel, double left, double top, const std::string& x_label) {
  std::vector<double> xs, ys;
  for (const PlotSeries& series : panel.series) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  if (panel.limit && !ys.empty()) ys.push_back(*panel.limit);
  const double right = left + kPanelWidth, bottom = top + kPanelHeight;
  const Axis x(xs, left, right), y(ys, bottom, top);
  std::string out = Text(left, top - 14, "panel", panel.title);
  out += DrawLegend(panel, right, top - 14);
  for (const double tick : y.Ticks()) {
    out += Line(left, y.At(tick), right, y.At(tick), "grid");
    out += Text(left - 8, y.At(tick) + 4, "faint end", TickText(tick));
  }
  for (const double tick : x.Ticks()) {
    out += Line(x.At(tick), bottom, x.At(tick), bottom + 5, "axis");
    out += Text(x.At(tick), bottom + 19, "faint middle", TickText(tick));
  }
  out += Line(left, bottom, right, bottom, "axis");
  out += Text((left + right) / 2, bottom + 38, "faint middle", x_label);
  if (panel.limit && y.Shows(*panel.limit)) {
    out += Line(left, y.At(*panel.limit), right, y.At(*panel.limit), "limit");
  }
  for (size_t i = 0; i < panel.series.size(); ++i) out += DrawSeries(panel.series[i], i, x, y);
  return out;
}

}  // namespace

std::vector<double> AxisTicks(double low, double high, bool log) {
  std::vector<double> ticks;
  if (!log) {
    const double rough = (high - low) / 6;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double lead = rough / power;
    const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    for (double i = std::ceil(low / step); i * step <= high; ++i) ticks.push_back(i * step);
    return ticks;
  }
  const bool wide = high / low > 1000;
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  const auto last = static_cast<int>(std::ceil(std::log10(high)));
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const double lead : {1, 2, 5}) {
      const double tick = lead * std::pow(10, exponent);
      if ((lead == 1 || !wide) && tick >= low && tick <= high) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string PlotSvg(const Plot& plot) {
  const double cell_width = kLeft + kPanelWidth + kRight;
  const double cell_height = kTop + kPanelHeight + kBottom;
  const size_t rows = (plot.panels.size() + kColumns - 1) / kColumns;
  const double width = cell_width * kColumns;
  const double height = kHead + cell_height * static_cast<double>(rows);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" role=\"img\">\n<title>{2}</title>\n{3}"
      "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--page)\"/>\n",
      width, height, Escape(plot.title), kStyle);
  out += Text(24, 34, "title", plot.title);
  out += Text(24, 56, "faint", plot.subtitle);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const double left = static_cast<double>(i % kColumns) * cell_width + kLeft;
    const double top = kHead + static_cast<double>(i / kColumns) * cell_height + kTop;
    out += DrawPanel(plot.panels[i], left, top, plot.x_label);
  }
  return out + "</svg>\n";
}

}  // namespace tokamak::loadgen
