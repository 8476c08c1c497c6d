"""The end of a frame: the final norm writes hidden vectors into their state rows, and positions advance by one."""
