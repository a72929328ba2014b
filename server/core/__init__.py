"""The node core: joins the queue engine and the cluster core of one node. Pure."""
