"""The documentation as a site: the pages of the repository, and the reference of the client."""
