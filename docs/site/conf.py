"""Sphinx's settings of the site. gather.py makes the pages; scripts/make_docs calls both."""

project = "tailrace"
author = "the tailrace authors"
copyright = author
root_doc = "index"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4  # links to headings, as code hosts make them
primary_domain = "c"
highlight_language = "none"
nitpicky = False
smartquotes = False  # it makes a dash of the `--` of an option, which nobody can type
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
cpp_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = "tailrace"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_opensearch = ""
# Light and dark, as the reader's system says, with a button. All files are in the site: it needs no network.
pygments_style = "tango"
pygments_dark_style = "monokai"
html_theme_options = {
    "navigation_with_keys": False,
    "light_css_variables": {"color-brand-primary": "#0b5d6e", "color-brand-content": "#0b5d6e"},
    "dark_css_variables": {"color-brand-primary": "#6cc5d8", "color-brand-content": "#6cc5d8"},
}
