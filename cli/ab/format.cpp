// Number formatting for reports; see format.hpp.
#include "ab/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

std::string with_minus(const std::string& text) {
  return text.starts_with('-') ? "\u2212" + text.substr(1) : text;
}

std::string prefixed(double value, double base_unit_floor, const char* unit) {
  static constexpr struct {
    double scale;
    const char* prefix;
  } kPrefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& p : kPrefixes) {
    if (std::abs(value) >= p.scale && std::abs(value) >= base_unit_floor) {
      return with_minus(fmt::format("{:.4g} {}{}", value / p.scale, p.prefix, unit));
    }
  }
  const char* gap = *unit ? " " : "";
  if (value == std::round(value)) return with_minus(fmt::format("{:.0f}{}{}", value, gap, unit));
  return with_minus(fmt::format("{:.4g}{}{}", value, gap, unit));
}

}  // namespace

int decimals_for(double resolution) {
  if (!std::isfinite(resolution) || resolution <= 0) return 4;
  return std::clamp(1 - static_cast<int>(std::floor(std::log10(resolution))), 0, 9);
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinite" : "\u2212infinite";
  if (std::abs(value) < 0.5 * std::pow(10.0, -decimals)) value = 0;  // no "-0.00"
  return with_minus(fmt::format("{:.{}f}", value, decimals));
}

std::string fixed_signed(double value, int decimals) {
  const std::string text = fixed(value, decimals);
  const bool zero = std::abs(value) < 0.5 * std::pow(10.0, -decimals);
  return value > 0 && !zero && std::isfinite(value) ? "+" + text : text;
}

std::string compact(double value) {
  if (!std::isfinite(value)) return fixed(value, 0);
  return with_minus(fmt::format("{:.5g}", value));
}

std::string p_value(double p) {
  if (std::isnan(p)) return "\u2013";
  if (p < 0.0001) return "< 0.0001";
  if (p >= 0.9995) return "1";
  return fmt::format("{:.{}f}", p, p < 0.001 ? 5 : p < 0.1 ? 4 : 3);
}

std::string p_text(double p) {
  const std::string value = p_value(p);
  return value.starts_with('<') ? "p " + value : "p = " + value;
}

std::string coverage_text(double alpha) {
  const int digits = 2 + std::max(2, static_cast<int>(std::ceil(-std::log10(alpha))));
  return fmt::format("{:.{}g}%", 100 * (1 - alpha), digits);
}

std::string quantity(double value, Axis axis) {
  switch (axis) {
    case Axis::kBytes:
      return prefixed(value, 1e3, "B");
    case Axis::kSeconds:
      return with_minus(fmt::format("{:.4g} s", value));
    case Axis::kSteps:
    case Axis::kSamples:
    case Axis::kTokens:
      return prefixed(value, 1e5, "");
  }
  return compact(value);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string axis_label(Axis axis) {
  switch (axis) {
    case Axis::kSteps:
      return "step";
    case Axis::kSamples:
      return "samples";
    case Axis::kTokens:
      return "tokens";
    case Axis::kSeconds:
      return "wall time (s)";
    case Axis::kBytes:
      return "bytes sent";
  }
  return "step";
}

std::string interval_text(const Interval& interval, int decimals) {
  if (std::isnan(interval.low)) return "\u2013";
  return fmt::format("{} to {}", fixed(interval.low, decimals), fixed(interval.high, decimals));
}

int metric_decimals(const MeanEstimate& difference, double level) {
  if (difference.n >= 2 && difference.sd > 0) return decimals_for(difference.sd);
  if (difference.mean != 0) return decimals_for(std::abs(difference.mean) / 10);
  return decimals_for(std::abs(level) / 1000);
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::string_view indent) {
  const auto width_of = [](const std::string& text) {  // in characters of UTF-8
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  };
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent);
    for (std::size_t c = 0; c < row.size(); ++c)
      line += row[c] + std::string(widths[c] - width_of(row[c]) + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace tenon::ab
