//! A macro for structs that hold the members of a JSON object as raw JSON.

/// Declares a struct whose fields are `Option<&RawValue>`, and implements `Deserialize` from a JSON
/// object: unknown members are ignored, and if a name occurs twice the last member counts (serde's
/// derive would refuse that).
#[macro_export]
macro_rules! raw_members {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$about:meta])* $field:ident: $key:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name<'a> {
            $($(#[$about])* $vis $field: Option<&'a ::serde_json::value::RawValue>,)+
        }

        impl<'de: 'a, 'a> ::serde::de::Deserialize<'de> for $name<'a> {
            fn deserialize<D: ::serde::de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[expect(non_camel_case_types, reason = "members are named as the fields")]
                enum Member { $($field,)+ Other }

                impl<'de> ::serde::de::Deserialize<'de> for Member {
                    fn deserialize<D: ::serde::de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        struct Name;
                        impl ::serde::de::Visitor<'_> for Name {
                            type Value = Member;
                            fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                                f.write_str("a member's name")
                            }
                            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                                Ok(match name { $($key => Member::$field,)+ _ => Member::Other })
                            }
                        }
                        deserializer.deserialize_identifier(Name)
                    }
                }

                struct Object<'a>(::std::marker::PhantomData<&'a ()>);
                impl<'de: 'a, 'a> ::serde::de::Visitor<'de> for Object<'a> {
                    type Value = $name<'a>;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut object = $name::default();
                        while let Some(member) = map.next_key()? {
                            match member {
                                $(Member::$field => object.$field = Some(map.next_value()?),)+
                                Member::Other => {
                                    map.next_value::<::serde::de::IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(object)
                    }
                }
                deserializer.deserialize_map(Object(::std::marker::PhantomData))
            }
        }
    };
}
