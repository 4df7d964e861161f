// Markup helpers; see html.hpp.
#include "ab/html.hpp"

#include "ab/report.hpp"

#include <fmt/format.h>

namespace tenon::ab {

std::string table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows,
                  std::string_view css_class) {
  std::string out = fmt::format("<div class=\"scroll {}\"><table><thead><tr>", css_class);
  for (const TableColumn& c : columns) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.is_number ? " class=\"num\"" : "", c.head);
  }
  out += "</tr></thead><tbody>\n";
  for (const TableRow& row : rows) {
    out += row.strong ? "<tr class=\"strong\">" : "<tr>";
    for (std::size_t i = 0; i < row.cells_html.size(); ++i) {
      const char* css_class = columns[i].is_number ? " class=\"num\"" : "";
      out += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", css_class, row.cells_html[i])
                    : fmt::format("<td{}>{}</td>", css_class, row.cells_html[i]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) out += k <= count ? kDigits[word >> (18 - 6 * k) & 63u] : '=';
  }
  return out;
}

std::string csv_link(std::string_view text, std::string_view file_name, std::string_view label) {
  return fmt::format("<a class=\"csv\" download=\"{}\" href=\"data:text/csv;charset=utf-8;base64,{}\">{}</a>",
                     escape_html(file_name), base64(text), escape_html(label));
}

std::string drawing(ChartSize wide, ChartSize narrow, const std::function<std::string(ChartSize)>& draw) {
  return fmt::format("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>\n", draw(wide),
                     draw(narrow));
}

std::string tabs(std::string_view group, const std::vector<Panel>& panels) {
  std::string out = "<div class=\"tabs\">\n";
  for (std::size_t i = 0; i < panels.size(); ++i) {
    out += fmt::format(
        "<input type=\"radio\" name=\"{0}\" id=\"{0}-{1}\"{2}><label for=\"{0}-{1}\">{3}</label>\n", group, i,
        i == 0 ? " checked" : "", escape_html(panels[i].label));
  }
  for (const Panel& p : panels) {
    out += fmt::format("<div class=\"panel\"><p class=\"panel-name\">against {}</p>{}</div>\n",
                       escape_html(p.label), p.content_html);
  }
  return out + "</div>\n";
}

std::string arm_key(std::size_t arm, std::string_view name) {
  Svg mark(14, 14, "key", "");
  mark.marker(marker_of(arm), {7, 7}, 4.5, fmt::format("dot arm{}", arm % 6), "");
  return fmt::format("<span class=\"arm\">{}{}</span>", mark.take(), escape_html(name));
}

std::string page(std::string_view title, std::string_view body_html) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escape_html(title),
                     kReportStyle);
  out += body_html;
  return out + "</main>\n</body>\n</html>\n";
}

std::string fact(std::string_view name, std::string_view value_html) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name), value_html);
}

std::string section(std::string_view title, std::string_view content_html) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape_html(title), content_html);
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  if (css_class.empty()) return fmt::format("<p>{}</p>\n", escape_html(text));
  return fmt::format("<p class=\"{}\">{}</p>\n", css_class, escape_html(text));
}

}  // namespace tenon::ab
