"""Publishing of the merged logs."""


def maybe_publish(logs_dir, website=None):
    """Publishes `logs_dir` on a web server, where one is set.

    There is no setting for a server yet, so the trainer passes none and nothing happens.

    Args:
      logs_dir: folder with hyper.js.
      website: None.
    Returns:
      Whether anything was published: False.
    Source: the notebook's function of that name, which did nothing until its settings were set.
    """
    del logs_dir, website
    return False
