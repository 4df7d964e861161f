// Contract `model/1`: a blueprint that turns options and a description of the data into a graph of layers.
// The graph is a plain structure that can be printed, edited in TOML and rebuilt.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/options.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

TENON_ABI_BEGIN

/// One option of a layer as a blueprint writes it.
using OptionValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                 std::vector<double>, std::vector<std::string>>;
struct NamedOption {
  std::string name;
  OptionValue value;
};

/// A node: `type` is a layer component, `inputs` name values: a data field ("tokens"), or "node" / "node:1"
/// for outputs.
struct NodeSpec {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;
  std::vector<NamedOption> options;
};

/// Throws Error(kConfig): a graph this large comes from a mistyped number.
[[noreturn]] void refuse_graph(std::size_t nodes);

/// Allocator of a list of nodes, which refuses to grow before it exhausts the machine: a number in the
/// configuration may set how many nodes a blueprint writes.
template <typename T>
struct NodeAllocator {
  using value_type = T;
  static constexpr std::size_t kMostNodes = std::size_t{1} << 18;

  NodeAllocator() = default;
  template <typename Other>
  NodeAllocator(const NodeAllocator<Other>&) noexcept {}
  T* allocate(std::size_t count) {
    if (count > kMostNodes) refuse_graph(kMostNodes);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) noexcept { std::allocator<T>().deallocate(memory, count); }
  bool operator==(const NodeAllocator&) const noexcept { return true; }
};

class NodeList : public std::vector<NodeSpec, NodeAllocator<NodeSpec>> {
 public:
  using std::vector<NodeSpec, NodeAllocator<NodeSpec>>::vector;
  NodeList(const std::vector<NodeSpec>& nodes) { assign(nodes.begin(), nodes.end()); }
};

/// Nodes in an order in which every input is known. Exactly one node is the trained loss (a LossLayer of
/// metric "loss").
struct GraphSpec {
  NodeList nodes;
};

class Model {
 public:
  using Interface = Model;
  static constexpr const char* kKind = "model/1";
  virtual ~Model();
  /// Pure in options and data. Throws Error(kConfig) when the data does not fit (no field "tokens", ...).
  virtual GraphSpec build(const DataInfo& data) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
