// Counts, dtypes and dimensions of values against declared ones.
#include "graph/ports.hpp"

#include <tenon/tensor.hpp>

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace tenon::graph {
namespace {

/// The words of a text, without brackets and commas.
std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kBetween = " ,[]";
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    words.push_back(text.substr(0, text.find_first_of(kBetween)));
    text.remove_prefix(words.back().size());
  }
}

bool has_dtype(const tenon_port_v1& port, DType dtype, DType activations) {
  const std::vector<std::string_view> words = words_of(port.dtypes);
  if (words.empty()) return true;
  for (const std::string_view word : words)
    if (word == dtype_name(dtype) || (word == "activations" && dtype == activations)) return true;
  return false;
}

bool has_dimensions(const tenon_port_v1& port, int rank) {
  int least = 0;
  bool open = *port.shape == '\0';
  for (const std::string_view word : words_of(port.shape)) {
    if (word == "...")
      open = true;
    else
      ++least;
  }
  return open ? rank >= least : rank == least;
}

std::string value_problem(const tenon_port_v1& port, PortSide side, const ValueSpec& found,
                          DType activations) {
  const bool typed = has_dtype(port, found.dtype, activations);
  if (typed && has_dimensions(port, found.shape.rank())) return "";
  const std::string_view wanted =
      std::string_view(port.dtypes) == "activations" ? dtype_name(activations) : port.dtypes;
  return fmt::format("expected {} '{}' to be {}{}{}, found {} {}",
                     side == PortSide::kInputs ? "input" : "output", port.name, wanted,
                     wanted.empty() || *port.shape == '\0' ? "" : " ", port.shape, dtype_name(found.dtype),
                     found.shape.text());
}

std::string count_problem(const std::vector<const tenon_port_v1*>& ports, PortSide side, int count) {
  int least = 0, most = 0;
  std::vector<std::string> names;
  for (const tenon_port_v1* port : ports) {
    const bool repeated = (port->flags & TENON_PORT_REPEATED) != 0;
    const bool optional = (port->flags & TENON_PORT_OPTIONAL) != 0;
    most = repeated ? std::numeric_limits<int>::max() : most + 1;
    if (!optional) ++least;
    names.push_back(fmt::format("{}{}{}", port->name, repeated ? "..." : "", optional ? "?" : ""));
  }
  if (count >= least && count <= most) return "";
  const std::string range = most == std::numeric_limits<int>::max() ? fmt::format("at least {}", least)
                            : most > least                          ? fmt::format("{} to {}", least, most)
                                                                    : fmt::format("{}", least);
  return fmt::format("expected {} {}{} ({}), found {}", range, side == PortSide::kInputs ? "input" : "output",
                     range == "1" ? "" : "s", fmt::join(names, ", "), count);
}

}  // namespace

std::string ports_problem(const tenon_port_v1* const* ports, PortSide side, int count,
                          const std::function<ValueSpec(int)>& value, DType activations) {
  if (ports == nullptr || *ports == nullptr) return "";
  std::vector<const tenon_port_v1*> mine;
  for (; *ports != nullptr; ++ports)
    if ((((*ports)->flags & TENON_PORT_OUTPUT) != 0) == (side == PortSide::kOutputs)) mine.push_back(*ports);
  std::string problem = count_problem(mine, side, count);
  for (int i = 0; i < count && problem.empty(); ++i) {
    const std::size_t last = mine.size() - 1, port = static_cast<std::size_t>(i);
    problem = value_problem(*mine[port < last ? port : last], side, value(i), activations);
  }
  return problem;
}

}  // namespace tenon::graph
