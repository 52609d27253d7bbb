//! x
pub enum Format { Ahp, Tywrap, Cep22, Loro }
pub fn run(_: Format, _: crate::Input) {}
