// Reduces the output of abidw to what Tenon promises: reads it from standard input, writes it to standard
// output.
//
// Kept are the types that the probe's functions reach, with their fields, bases, enumerators and virtual
// functions. Types of the standard library and of C stay as names with a size. Dropped are functions that are
// not virtual (a plugin that needs one of them does not link without it) and everything that depends on the
// folder or on the day.
#include <pugixml.hpp>

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Node = pugi::xml_node;

const std::set<std::string_view> kTypes = {
    "type-decl",        "class-decl",         "union-decl",         "enum-decl",      "typedef-decl",
    "pointer-type-def", "reference-type-def", "qualified-type-def", "array-type-def", "function-type",
    "subrange"};
constexpr const char* kForget[] = {"filepath",      "line",       "column", "path",
                                   "comp-dir-path", "visibility", "binding"};

std::string_view tag(Node node) {
  return node.name();
}
std::string_view name(Node node) {
  return node.attribute("name").value();
}
bool is_class(Node node) {
  return tag(node) == "class-decl" || tag(node) == "union-decl";
}
bool is_probe(Node node) {
  return tag(node) == "function-decl" && name(node).substr(0, 10) == "tenon_abi_";
}

/// The children, so that some can be removed on the way.
std::vector<Node> children(Node node) {
  return {node.begin(), node.end()};
}

/// Keeps of each class only what determines its layout and calls. `ours`: inside a type of Tenon.
void shorten(Node node, bool ours) {
  if (tag(node) != "elf-symbol") {
    for (const char* attribute : kForget) node.remove_attribute(attribute);
  }
  for (const Node child : children(node)) {
    bool inside = ours;
    if (tag(child) == "namespace-decl") inside = ours || name(child) == "tenon";
    if (is_class(child)) inside = ours || name(child).substr(0, 6) == "tenon_";
    const bool global = tag(node) == "namespace-decl" || tag(node) == "abi-instr";
    const bool is_virtual = child.attribute("vtable-offset") != nullptr;
    if ((tag(child) == "member-function" && !(ours && is_virtual)) ||
        (tag(child) == "function-decl" && global && !is_probe(child)) ||
        (tag(child) == "var-decl" && global) ||
        (tag(child) == "data-member" && std::string_view(child.attribute("static").value()) == "yes")) {
      node.remove_child(child);
      continue;
    }
    if (is_class(child) && !inside) {
      for (const Node member : children(child)) {
        if (tag(member) != "member-type") const_cast<Node&>(child).remove_child(member);
      }
    }
    shorten(child, inside);
  }
}

/// Ids of the types that a node names. A nested type counts on its own when something names it.
void references(Node node, std::set<std::string>& found) {
  for (const pugi::xml_attribute attribute : node.attributes()) {
    const std::string_view key = attribute.name();
    const bool is_id = key.size() >= 7 && key.substr(key.size() - 7) == "type-id";
    if (is_id || key == "naming-typedef-id" || key == "def-of-decl-id") found.insert(attribute.value());
  }
  for (const Node child : node) {
    if (tag(child) != "member-type") references(child, found);
  }
}

/// Removes nodes that are not alive; returns whether anything of the node remains.
bool sweep(Node node, const std::set<std::string>& alive) {
  for (const Node child : children(node)) {
    if (kTypes.count(tag(child)) > 0 && child.attribute("id") != nullptr) {
      bool nested = false;
      for (const Node member : children(child)) {
        if (tag(member) != "member-type") continue;
        if (sweep(member, alive)) {
          nested = true;
        } else {
          const_cast<Node&>(child).remove_child(member);
        }
      }
      if (alive.count(child.attribute("id").value()) == 0 && !nested) node.remove_child(child);
    } else if (tag(child) == "namespace-decl" || tag(child) == "member-type" || tag(child) == "class-decl" ||
               tag(child) == "abi-instr") {
      if (!sweep(child, alive)) node.remove_child(child);
    }
  }
  return node.first_child() != nullptr;
}

void index(Node node, std::map<std::string, Node>& by_id, std::set<std::string>& roots) {
  if (kTypes.count(tag(node)) > 0 && node.attribute("id") != nullptr)
    by_id[node.attribute("id").value()] = node;
  if (is_probe(node)) references(node, roots);
  for (const Node child : node) index(child, by_id, roots);
}

}  // namespace

int main() {
  pugi::xml_document document;
  if (const pugi::xml_parse_result result = document.load(std::cin); !result) {
    std::cerr << "reduce: the output of abidw is no XML: " << result.description() << " at byte "
              << result.offset << "\n";
    return 1;
  }
  const Node corpus = document.document_element();
  shorten(corpus, false);

  std::map<std::string, Node> by_id;
  std::set<std::string> work, alive;
  index(corpus, by_id, work);
  while (!work.empty()) {
    const std::string id = *work.begin();
    work.erase(work.begin());
    if (!alive.insert(id).second) continue;
    std::set<std::string> named;
    if (const auto found = by_id.find(id); found != by_id.end()) references(found->second, named);
    for (const std::string& other : named) {
      if (alive.count(other) == 0) work.insert(other);
    }
  }
  sweep(corpus, alive);
  corpus.print(std::cout, " ", pugi::format_indent | pugi::format_attribute_single_quote);
  return 0;
}
