"""Sphinx: `make docs` writes build/docs; the tutorial is run while it is built, and an error in it stops the build."""

from importlib import metadata

project = "gigaslide"
author = "the gigaslide developers"
release = metadata.version("gigaslide")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "gigaslide"
html_static_path = ["static"]
html_css_files = ["gigaslide.css"]
exclude_patterns = ["static"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
myst_enable_extensions = ["colon_fence"]
